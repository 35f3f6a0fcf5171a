package cli

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gus/agent/client"
)

func (a *app) completionCommand() *cli.Command {
	return command(cli.Command{
		Name:      "completion",
		Usage:     "print the script that completes gus in a shell",
		ArgsUsage: "bash|zsh|fish",
		Description: "It completes commands, flags, and keys: those that this site knows, if the agent runs. For a shell\n" +
			"that runs, and for all that will:\n\n" +
			"   bash   source <(gus completion bash)\n" +
			"          gus completion bash >~/.local/share/bash-completion/completions/gus\n" +
			"   zsh    source <(gus completion zsh)     # after compinit\n" +
			"          gus completion zsh >DIR/_gus     # DIR in $fpath\n" +
			"   fish   gus completion fish | source\n" +
			"          gus completion fish >~/.config/fish/completions/gus.fish",
		Action: func(c *cli.Context) error {
			// The scripts ask by the arguments `words WORD...` and `line LINE WORD`.
			args := c.Args().Slice()
			switch {
			case len(args) > 1 && args[0] == "words":
				return a.complete(c.Context, c.App.Commands, args[1:])
			case len(args) == 3 && args[0] == "line":
				return a.completeLine(c.Context, c.App.Commands, args[1], args[2])
			}
			if err := wantArgs(c, 1, 1); err != nil {
				return err
			}
			script, ok := completionScripts[args[0]]
			if !ok {
				return usage("completion: there is none for %q: there are bash, zsh and fish", args[0])
			}
			_, err := io.WriteString(a.out, script)
			return err
		},
	})
}

// candidates are what a word may become.
type candidates struct {
	words []string
	files bool // the shell is to find names of files
}

// complete prints what the last of the words behind `gus` may become: a line that
// says of what kind that is, "words" or "files", and then a word a line.
func (a *app) complete(ctx context.Context, commands []*cli.Command, words []string) error {
	found := candidatesFor(ctx, commands, words)
	out := bufio.NewWriter(a.out)
	if found.files {
		fmt.Fprintln(out, "files")
	} else {
		fmt.Fprintln(out, "words")
	}
	for _, w := range found.words {
		fmt.Fprintln(out, w)
	}
	return out.Flush()
}

// candidatesFor finds what the last word may become.
func candidatesFor(ctx context.Context, commands []*cli.Command, words []string) candidates {
	before, last := words[:len(words)-1], words[len(words)-1]
	name, rest := splitCommand(commands, before)
	c := find(commands, name)
	if c == nil && name == "" && !strings.HasPrefix(last, "-") {
		names := []string{"help"}
		for _, c := range commands {
			names = append(names, c.Name)
		}
		return candidates{words: withPrefix(names, last)}
	}
	if name == "help" {
		return candidatesFor(ctx, commands, []string{last})
	}
	if c == nil {
		return candidates{}
	}
	for _, sub := range c.Subcommands {
		if len(rest) > 0 && rest[0] == sub.Name {
			return completion{ctx: ctx, command: sub}.candidates(rest[1:], last)
		}
	}
	return completion{ctx: ctx, command: c}.candidates(rest, last)
}

// withPrefix returns the words that begin with prefix.
func withPrefix(words []string, prefix string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, prefix) })
}

// completion completes a word behind a command.
type completion struct {
	ctx     context.Context
	command *cli.Command
	flags   []string // that stand before the word, with their values
}

func (c completion) candidates(before []string, last string) candidates {
	flags, words, dashes, value := c.split(before)
	c.flags = flags
	switch {
	case value != nil:
		return c.named(placeholder(value), last)
	case dashes && strings.Contains(c.command.ArgsUsage, "[-- "):
		return candidates{files: true} // of the command to run
	case !dashes && strings.HasPrefix(last, "-") && last != "-":
		if strings.Contains(last, "=") {
			return candidates{files: true}
		}
		var names []string
		for _, f := range c.command.Flags {
			names = append(names, "--"+f.Names()[0])
		}
		return candidates{words: withPrefix(names, last)}
	}
	args := strings.Fields(c.command.ArgsUsage)
	if len(words) >= len(args) {
		return candidates{}
	}
	return c.named(args[len(words)], last)
}

// split tells flags from arguments, as splitFlags does, and says whether there was
// a "--", and which flag the next word is the value of, if any.
func (c completion) split(args []string) (flags, words []string, dashes bool, value cli.Flag) {
	for i := 0; i < len(args); i++ {
		w := args[i]
		if dashes || w == "-" || !strings.HasPrefix(w, "-") {
			words = append(words, w)
			continue
		}
		if w == "--" {
			dashes = true
			continue
		}
		name, _, inline := strings.Cut(strings.TrimLeft(w, "-"), "=")
		f := findFlag(c.command, name)
		if f == nil {
			continue
		}
		if takesValue(f) && !inline {
			if i++; i == len(args) {
				return flags, words, dashes, f
			}
			flags = append(flags, w, args[i])
			continue
		}
		flags = append(flags, w)
	}
	return flags, words, dashes, nil
}

var quotedName = regexp.MustCompile("`([^`]+)`")

// placeholder is how a flag's usage names its value: FILE of "the configuration `FILE`".
func placeholder(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	if m := quotedName.FindStringSubmatch(d.GetUsage()); m != nil {
		return m[1]
	}
	return ""
}

// named finds what may stand where a usage says name: [PREFIX], KEY, FILE|-.
func (c completion) named(name, last string) candidates {
	choices := strings.Split(strings.Trim(name, "[]"), "|")
	switch {
	case slices.Contains(choices, "KEY"), slices.Contains(choices, "PREFIX"):
		return candidates{words: c.keys(last)}
	case slices.Contains(choices, "@FILE"):
		return candidates{files: strings.HasPrefix(last, "@")}
	case slices.ContainsFunc(choices, func(s string) bool { return s == "FILE" || s == "DIR" || s == "PATH" }):
		return candidates{files: true}
	case strings.ToLower(name) == name && len(choices) > 1:
		return candidates{words: withPrefix(choices, last)}
	}
	return candidates{}
}

// What a completion asks the agent for at most: nobody waits for long for it, or reads more.
const (
	completionTime = 300 * time.Millisecond
	completionKeys = 200
)

// keys returns keys that begin with prefix, as the site of the agent knows them:
// none where anything is wrong.
func (c completion) keys(prefix string) (keys []string) {
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for _, f := range c.command.Flags {
		if err := f.Apply(set); err != nil {
			return nil
		}
	}
	if err := set.Parse(c.flags); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, completionTime)
	defer cancel()
	cl := client.New(agentSocket(cli.NewContext(nil, set, nil), serviceSocket))
	defer cl.Close()
	for e, err := range cl.List(ctx, client.Listing{Prefix: prefix, Local: true, Timeout: completionTime}) {
		if err != nil || len(keys) == completionKeys {
			break
		}
		keys = append(keys, e.Key)
	}
	return keys
}
