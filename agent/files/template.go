package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/template"

	"gus/agent/client"
)

// maxRendered bounds what a template makes, in bytes: a mistake in one must not
// eat the memory.
const maxRendered = 16 << 20

// deps is what a template has read, so that it is rendered again when that changes.
type deps struct {
	keys     map[string]client.Version // empty: not there
	prefixes map[string][]string       // of keys that were listed
}

// touches says whether a change of key changes what was read.
func (d deps) touches(key string) bool {
	if _, ok := d.keys[key]; ok {
		return true
	}
	for prefix := range d.prefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// digest tells what was read, the same at all sites that read the same.
func (d deps) digest() string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(d.keys)) {
		fmt.Fprintf(h, "%s\x00%s\x00", key, d.keys[key])
	}
	for _, prefix := range slices.Sorted(maps.Keys(d.prefixes)) {
		fmt.Fprintf(h, "%s\x00%q\x00", prefix, d.prefixes[prefix])
	}
	return string(h.Sum(nil))
}

// render renders the template text of key. What it has read is returned with an
// error as well: when that changes, the error may be over.
func (j *job) render(ctx context.Context, key, text string) ([]byte, deps, error) {
	d := deps{map[string]client.Version{}, map[string][]string{}}
	t, err := template.New(key).Option("missingkey=error").Funcs(template.FuncMap{
		"key":  func(k string) (string, error) { return j.readKey(ctx, d, k) },
		"keys": func(prefix string) ([]string, error) { return j.listKeys(ctx, d, prefix) },
		"site": func() string { return j.site },
		"env":  readEnv,
	}).Parse(text)
	if err != nil {
		return nil, d, err
	}
	var out limited
	if err := t.Execute(&out, nil); err != nil {
		return nil, d, err
	}
	if len(bytes.TrimSpace(out.b.Bytes())) == 0 {
		return nil, d, fmt.Errorf("template: %s: it renders to nothing, which is not written: a file that is to be empty is a key without %s", key, templateSuffix)
	}
	return out.b.Bytes(), d, nil
}

func (j *job) readKey(ctx context.Context, d deps, key string) (string, error) {
	if strings.HasPrefix(key, systemKeys) {
		return "", fmt.Errorf("keys below %s are the system's", systemKeys)
	}
	ctx, cancel := context.WithTimeout(ctx, j.Ask)
	defer cancel()
	d.keys[key] = ""
	r, err := j.c.GetLocal(ctx, key)
	switch {
	case errors.Is(err, client.ErrNotFound):
		return "", fmt.Errorf("there is no key %q", key)
	case err != nil:
		return "", err
	}
	d.keys[key] = r.Version
	return string(r.Value), nil
}

func (j *job) listKeys(ctx context.Context, d deps, prefix string) ([]string, error) {
	d.prefixes[prefix] = nil
	var all []string
	for e, err := range j.c.List(ctx, client.Listing{Prefix: prefix, Local: true, Timeout: j.Ask}) {
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(e.Key, systemKeys) {
			all = append(all, e.Key)
		}
	}
	d.prefixes[prefix] = all
	return all, nil
}

// readEnv returns a variable that is set: one that is not is no empty one.
func readEnv(name string) (string, error) {
	v, ok := os.LookupEnv(name)
	if !ok {
		return "", fmt.Errorf("the variable %s is not set", name)
	}
	return v, nil
}

// limited is a buffer that does not grow for ever.
type limited struct{ b bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.b.Len()+len(p) > maxRendered {
		return 0, fmt.Errorf("it renders to more than %d bytes", maxRendered)
	}
	return l.b.Write(p)
}
