package cli

import (
	"bufio"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

// completeLine is complete for a shell that parts words where keys have a colon or
// an equals sign. line is the command line up to the cursor, and word what the shell takes
// for the end of it that is to be replaced. Words are printed as the shell needs
// them: quoted, and without what stands before word.
func (a *app) completeLine(ctx context.Context, commands []*cli.Command, line, word string) error {
	words, raw := shellWords(line)
	if len(words) < 2 { // the name of the program alone
		return nil
	}
	found := candidatesFor(ctx, commands, words[1:])
	out := bufio.NewWriter(a.out)
	if found.files {
		fmt.Fprintln(out, "files")
		return out.Flush()
	}
	fmt.Fprintln(out, "words")
	quote, before := backslashes, strings.TrimSuffix(raw, word)
	switch {
	case strings.HasPrefix(raw, `"`): // the shell closes a quotation that is open
		quote, before = quotedInside, strings.TrimPrefix(before, `"`)
	case strings.HasPrefix(raw, "'"):
		quote, before = func(s string) string { return strings.ReplaceAll(s, "'", `'\''`) }, strings.TrimPrefix(before, "'")
	}
	for _, w := range found.words {
		fmt.Fprintln(out, strings.TrimPrefix(quote(w), before))
	}
	return out.Flush()
}

// unsafe are the characters that mean something to a shell.
var unsafe = regexp.MustCompile(`[^\pL\pN_@%+:,./=-]`)

// backslashes quotes s for a shell.
func backslashes(s string) string {
	return unsafe.ReplaceAllString(s, `\$0`)
}

var unsafeInside = regexp.MustCompile("[\"$`\\\\]")

// quotedInside quotes s for a shell, inside of double quotes.
func quotedInside(s string) string {
	return unsafeInside.ReplaceAllString(s, `\$0`)
}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// shellWords parts a line into words, without assignments before the first, as a
// shell does, but for what it would put in place of variables and patterns. The last word,
// which may be empty, is also returned as it stands.
func shellWords(line string) (words []string, raw string) {
	var word strings.Builder
	begin, quote, inWord := 0, byte(0), false
	for i := 0; i < len(line); i++ {
		switch ch := line[i]; {
		case quote == '\'' && ch != '\'', quote == '"' && ch != '"' && ch != '\\':
			word.WriteByte(ch)
		case quote != 0 && ch == quote:
			quote = 0
		case ch == '\\':
			if i++; i < len(line) {
				word.WriteByte(line[i])
			}
			inWord = true
		case ch == '\'' || ch == '"':
			quote, inWord = ch, true
		case ch == ' ' || ch == '\t':
			if inWord && (len(words) > 0 || !assignment.MatchString(word.String())) {
				words = append(words, word.String())
			}
			word.Reset()
			begin, inWord = i+1, false
		default:
			word.WriteByte(ch)
			inWord = true
		}
	}
	return append(words, word.String()), line[begin:]
}
