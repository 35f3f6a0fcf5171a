package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"unicode/utf8"

	"gus/agent"
	"gus/agent/client"
)

// maxLine is the length in bytes of the longest line that can hold a key and a value:
// JSON makes a byte six at most.
const maxLine = 6*(client.MaxValue+1024) + 1024

// importFile is an export that is to be read twice: to check all of it before
// anything is written, and to write it.
type importFile struct {
	*os.File
	name  string
	spool bool // it is a copy, of what could be read but once, that is to be removed
}

// openImport opens the file, or copies to one what comes through a pipe. The caller
// closes it.
func (a *app) openImport(name string) (*importFile, error) {
	in := a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("import: %w", err)
		}
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return &importFile{File: f, name: name}, nil
		}
		defer f.Close()
		in = f
	}
	spool, err := os.CreateTemp("", "gus-import-")
	if err != nil {
		return nil, fmt.Errorf("import: keep what is read until all is checked: %w", err)
	}
	// Where a file without a name can be used, none is left behind, whatever happens.
	f := &importFile{File: spool, name: name, spool: os.Remove(spool.Name()) != nil}
	if _, err := io.Copy(spool, in); err != nil {
		f.Close()
		return nil, fmt.Errorf("import: read %s: %w", name, err)
	}
	return f, nil
}

// Close closes the file, and removes it where it is to be.
func (f *importFile) Close() error {
	err := f.File.Close()
	if f.spool {
		err = errors.Join(err, os.Remove(f.File.Name()))
	}
	return err
}

// records calls yield with each record from the beginning on, and stops at the
// first error, its own too.
func (f *importFile) records(yield func(line int, key string, value []byte) error) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("import: read %s: %w", f.name, err)
	}
	in := bufio.NewScanner(f)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	line := 0
	for in.Scan() {
		line++
		text := bytes.TrimSpace(in.Bytes())
		if len(text) == 0 {
			continue
		}
		key, value, err := parseRecord(text)
		if err != nil {
			return f.wrong(line, err)
		}
		if err := yield(line, key, value); err != nil {
			return err
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return f.wrong(line+1, fmt.Errorf("the line is longer than any key with a value, the limit of values being %d bytes (1 MiB): %w", client.MaxValue, client.ErrTooLarge))
	} else if err != nil {
		return fmt.Errorf("import: read %s: %w", f.name, err)
	}
	return nil
}

// wrong is the error of a line.
func (f *importFile) wrong(line int, err error) error {
	return fmt.Errorf("import: %s, line %d: %w", f.name, line, err)
}

// check reads all, and returns how many records there are, or what is wrong first.
func (f *importFile) check() (n int, err error) {
	lines := map[string]int{}
	err = f.records(func(line int, key string, value []byte) error {
		if err := agent.CheckKey(key); err != nil {
			return f.wrong(line, err)
		}
		if len(value) > client.MaxValue {
			return f.wrong(line, client.TooLarge(int64(len(value))))
		}
		if before, ok := lines[key]; ok {
			return f.wrong(line, fmt.Errorf("the key %s stands in line %d already", printable(key), before))
		}
		lines[key] = line
		n++
		return nil
	})
	return n, err
}

// parseRecord reads a line. What JSON's reader would quietly replace is refused:
// the bytes that were exported are those that come back.
func parseRecord(text []byte) (key string, value []byte, err error) {
	if !utf8.Valid(text) {
		return "", nil, errors.New("it is not UTF-8: a value that is not goes into base64")
	}
	if loneSurrogate(text) {
		return "", nil, errors.New(`it has half a character, one of \ud800 to \udfff alone: a value that is not UTF-8 goes into base64`)
	}
	var r record
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return "", nil, fmt.Errorf(`%w: a line is like {"key":"a","value":"b"}`, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return "", nil, errors.New("there is more behind the record: one a line")
	}
	switch {
	case (r.Value == nil) == (r.Base64 == nil):
		return "", nil, errors.New("it must have one of value and base64")
	case r.Value != nil:
		return r.Key, []byte(*r.Value), nil
	}
	return r.Key, *r.Base64, nil
}

// loneSurrogate says whether JSON text escapes one half of a character without
// the other.
func loneSurrogate(text []byte) bool {
	half := func(i int) uint64 { // the \uXXXX at i; 0 where there is none
		if i+6 > len(text) || text[i] != '\\' || text[i+1] != 'u' {
			return 0
		}
		n, _ := strconv.ParseUint(string(text[i+2:i+6]), 16, 16)
		return n
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch n := half(i); {
		case n >= 0xd800 && n < 0xdc00:
			if low := half(i + 6); low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 11
		case n >= 0xdc00 && n <= 0xdfff:
			return true
		default:
			i++ // what is escaped may be a backslash
		}
	}
	return false
}
