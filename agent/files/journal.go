package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

const (
	// journalName is the file in a job's directory that says what is the job's own.
	journalName   = ownPrefix + "sync"
	journalHeader = "gus sync 1\n"
)

// journal remembers, across restarts and crashes, the files and directories that
// a job has put in place, and whether its command is still to be run. It is a file
// of lines: whose the names are (see owner) before all of them, "+NAME" and "-NAME" (with a slash behind a
// directory's), "!" where the command is owed, "." where it has been run. A line without an end is none.
type journal struct {
	t     *tree
	f     *os.File // nil: nothing is written
	size  int64    // up to here it is whole
	owner string   // the line that says whose the names are; empty: nobody knows
	names map[string]bool
	owed  bool

	forgotten int    // files of another owner that it had when it was opened
	was       string // that owner
}

// owner is the line that says whose the names of a journal are: "=PREFIX", or "~PREFIX" with
// templates, where the same keys are other files. A prefix has no control characters, so it is a line.
func (p Pull) owner() string {
	if p.Template {
		return "~" + p.Prefix
	}
	return "=" + p.Prefix
}

// ownerText tells people of an owner.
func ownerText(owner string) string {
	switch {
	case owner == "":
		return "a prefix that is not known"
	case owner[0] == '~':
		return fmt.Sprintf("%q, with templates", owner[1:])
	}
	return fmt.Sprintf("%q, without templates", owner[1:])
}

// openJournal reads t's journal. A dry one is only read. The names of another owner are forgotten,
// so their files are never removed: that no key of this owner stands for them says nothing of them. What is
// owed stays so, as it is about the directory.
func openJournal(t *tree, owner string, dry bool) (*journal, error) {
	j := &journal{t: t, owner: owner, names: map[string]bool{}}
	if t.root == nil {
		return j, nil
	}
	b, err := t.root.ReadFile(journalName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	whole := b[:bytes.LastIndexByte(b, '\n')+1]
	if len(whole) == 0 && !strings.HasPrefix(journalHeader, string(b)) {
		whole = b // not even the beginning of a header
	}
	lines, err := j.read(string(whole))
	if err != nil {
		return nil, err
	}
	another := j.owner != owner
	if another {
		j.disown(owner)
	}
	switch {
	case dry:
		return j, nil
	case another, len(whole) == 0, lines > 2*len(j.names)+1000:
		return j, j.rewrite()
	}
	if j.f, err = t.root.OpenFile(journalName, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	j.size = int64(len(whole))
	return j, nil
}

// disown gives the journal to owner, without its names.
func (j *journal) disown(owner string) {
	for name := range j.names {
		if !strings.HasSuffix(name, "/") {
			j.forgotten++
		}
	}
	clear(j.names)
	j.was, j.owner = j.owner, owner
}

func (j *journal) read(text string) (lines int, err error) {
	if text == "" {
		return 0, nil
	}
	j.owner = ""
	text, ok := strings.CutPrefix(text, journalHeader)
	if !ok {
		return 0, fmt.Errorf("%s was not written by this program: move it away; then files of keys that are deleted by now are kept", j.t.path(journalName))
	}
	for line := range strings.Lines(text) {
		lines++
		j.apply(strings.TrimSuffix(line, "\n"))
	}
	return lines, nil
}

func (j *journal) apply(line string) {
	if line == "" {
		return
	}
	switch name := line[1:]; line[0] {
	case '=', '~':
		j.owner = line
	case '+':
		j.names[name] = true
	case '-':
		delete(j.names, name)
	case '!':
		j.owed = true
	case '.':
		j.owed = false
	}
}

// rewrite begins the file anew.
func (j *journal) rewrite() error {
	var b bytes.Buffer
	b.WriteString(journalHeader + j.owner + "\n")
	for name := range j.names {
		b.WriteString("+" + name + "\n")
	}
	if j.owed {
		b.WriteString("!\n")
	}
	temp := tempName(tempPrefix)
	f, err := j.t.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = j.t.root.Rename(temp, journalName)
	}
	if err != nil {
		return errors.Join(err, f.Close(), j.t.root.Remove(temp))
	}
	j.f, j.size = f, int64(b.Len())
	return j.t.sync(".") // or a crash may bring the old one back
}

// note adds lines, durably, all or none.
func (j *journal) note(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	j.t.step()
	b := []byte(strings.Join(lines, "\n") + "\n")
	_, err := j.f.WriteAt(b, j.size)
	if err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", j.t.path(journalName), err), j.f.Truncate(j.size))
	}
	j.size += int64(len(b))
	for _, line := range lines {
		j.apply(line)
	}
	return nil
}

func (j *journal) close() {
	if j.f != nil {
		j.f.Close()
	}
}
