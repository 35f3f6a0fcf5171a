package cli

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// arrange puts the command first, then its flags, then "--" and the arguments,
// wherever they stood. It refuses commands and flags that there are not.
func arrange(commands []*cli.Command, args []string) ([]string, error) {
	name, rest := splitCommand(commands, args)
	switch name {
	case "":
		return nil, checkTop(rest)
	case "help":
		return arrangeHelp(commands, rest)
	}
	c := find(commands, name)
	if c == nil {
		return nil, noCommand(commands, name)
	}
	if len(c.Subcommands) > 0 {
		return arrangeWithin(c, rest)
	}
	flags, words, err := splitFlags(c, rest)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]string{name}, flags, []string{"--"}, words), nil
}

// arrangeWithin arranges the words behind a command that has commands of its own.
func arrangeWithin(c *cli.Command, rest []string) ([]string, error) {
	name, rest := splitCommand(c.Subcommands, rest)
	sub := find(c.Subcommands, name)
	switch {
	case name == "" && (slices.Contains(rest, "--help") || slices.Contains(rest, "-h")):
		return []string{c.Name, "--help"}, nil
	case name == "":
		return nil, usage("%s: which one? see `gus %s --help`", c.Name, c.Name)
	case sub == nil:
		return nil, noCommand(c.Subcommands, name)
	}
	named := *sub
	named.Name = c.Name + " " + sub.Name // for errors
	flags, words, err := splitFlags(&named, rest)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]string{c.Name, name}, flags, []string{"--"}, words), nil
}

// arrangeHelp makes `gus help COMMAND` the same as `gus COMMAND --help`.
func arrangeHelp(commands []*cli.Command, rest []string) ([]string, error) {
	if len(rest) == 0 {
		return nil, nil
	}
	if find(commands, rest[0]) == nil {
		return nil, noCommand(commands, rest[0])
	}
	return []string{rest[0], "--help"}, nil
}

// checkTop judges the words of a command line without a command.
func checkTop(rest []string) error {
	for _, w := range rest {
		if w != "-h" && w != "--help" {
			return usage("%s: a command is missing: see `gus help`", w)
		}
	}
	return nil
}

func noCommand(commands []*cli.Command, name string) error {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	if near := nearest(name, names); near != "" {
		return usage("there is no command %q: did you mean %q?", name, near)
	}
	return usage("there is no command %q: there are %s", name, strings.Join(names, ", "))
}

// splitCommand finds the command, which may stand behind flags, and returns the
// other words in their order.
func splitCommand(commands []*cli.Command, args []string) (name string, rest []string) {
	for i := 0; i < len(args); i++ {
		w := args[i]
		if w == "--version" && i == 0 {
			return "version", args[1:]
		}
		if !strings.HasPrefix(w, "-") {
			return w, slices.Concat(args[:i], args[i+1:])
		}
		flag, _, inline := strings.Cut(strings.TrimLeft(w, "-"), "=")
		for _, c := range commands {
			if f := findFlag(c, flag); f != nil {
				if takesValue(f) && !inline {
					i++
				}
				break
			}
		}
	}
	return "", args
}

// splitFlags tells a command's flags, with their values, from its arguments.
func splitFlags(c *cli.Command, args []string) (flags, words []string, err error) {
	for i := 0; i < len(args); i++ {
		w := args[i]
		if w == "--" {
			if !strings.Contains(c.ArgsUsage, "[-- ") { // else the command wants to know where it stood
				i++
			}
			return flags, append(words, args[i:]...), nil
		}
		if w == "-" || !strings.HasPrefix(w, "-") {
			words = append(words, w)
			continue
		}
		name, _, inline := strings.Cut(strings.TrimLeft(w, "-"), "=")
		f := findFlag(c, name)
		if f == nil {
			return nil, nil, noFlag(c, w, name)
		}
		flags = append(flags, w)
		if takesValue(f) && !inline {
			if i++; i == len(args) {
				return nil, nil, usage("%s: the flag %s needs a value", c.Name, w)
			}
			// A variable that is empty must not make a value of --dry-run.
			if v, isFlag := strings.CutPrefix(args[i], "--"); isFlag && findFlag(c, v) != nil {
				return nil, nil, usage("%s: the flag %s needs a value, and %s is a flag: write %s=%s if that is meant", c.Name, w, args[i], w, args[i])
			}
			flags = append(flags, args[i])
		}
	}
	return flags, words, nil
}

func noFlag(c *cli.Command, word, name string) error {
	var names []string
	for _, f := range c.Flags {
		names = append(names, f.Names()[0])
	}
	if near := nearest(name, names); near != "" {
		return usage("%s has no flag %s: did you mean --%s?", c.Name, word, near)
	}
	return usage("%s has no flag %s: see `gus %s --help`; an argument that begins with - goes after --", c.Name, word, c.Name)
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func findFlag(c *cli.Command, name string) cli.Flag {
	for _, f := range c.Flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

// nearest returns the candidate that is fewest edits away from word, if they
// are few for its length.
func nearest(word string, candidates []string) string {
	best, at := "", len(word)/3+2
	for _, c := range candidates {
		if d := distance(word, c); d < at {
			best, at = c, d
		}
	}
	return best
}

// distance is the number of letters to insert, remove or change to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			left, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, left+cost)
		}
	}
	return row[len(b)]
}

// wantArgs checks the number of arguments.
func wantArgs(c *cli.Context, least, most int) error {
	switch n := c.NArg(); {
	case n < least:
		return usage("%s: %d of %d arguments: usage: %s", c.Command.Name, n, least, usageLine(c))
	case n > most:
		return usage("%s: too many arguments from %q on: usage: %s", c.Command.Name, c.Args().Get(most), usageLine(c))
	}
	return nil
}

// usageLine is how the command is used; the library wants a space where it has no arguments.
func usageLine(c *cli.Context) string {
	return strings.TrimSpace("gus " + c.Command.Name + " " + c.Command.ArgsUsage)
}
