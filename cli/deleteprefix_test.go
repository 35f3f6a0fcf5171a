package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"gus/agent/client"
)

func TestDeletePrefix(t *testing.T) {
	stored := func() *fakeStore {
		s := &fakeStore{keys: map[string][]byte{"_gus/x": nil, "b": nil, "apple": nil}}
		for i := range 10 {
			s.keys[fmt.Sprintf("app/%d", i)] = nil
		}
		return s
	}
	for _, c := range []struct {
		args, out string
		code      int
		left      int
	}{
		{"--prefix app/ --yes", "10 keys deleted\n", exitDone, 3},
		{"--prefix apple -y", "1 key deleted\n", exitDone, 12},
		{"--prefix app --yes", "11 keys deleted\n", exitDone, 2},
		{"--prefix none --yes", "0 keys deleted\n", exitDone, 13},
		{"--prefix= --yes", "ALL 12 keys deleted\n", exitDone, 1},
		{"--prefix app/ --yes --json", `{"prefix":"app/","deleted":10}` + "\n", exitDone, 3},
		{"--prefix b --dry-run", "b\n", exitDone, 13},
		{"--prefix= --dry-run --json", `{"prefix":"","deleted":0,"keys":["app/0","app/1","app/2","app/3","app/4","app/5","app/6","app/7","app/8","app/9","apple","b"]}` + "\n", exitDone, 13},
		{"--prefix app/", "", exitUsage, 13},
		{"--prefix=", "", exitUsage, 13},
		{"--prefix app/ b --yes", "", exitUsage, 13},
		{"b --yes", "", exitUsage, 13},
		{"b --dry-run", "", exitUsage, 13},
		{"--prefix _gus/ --yes", "", exitRefused, 13},
		{"b", "", exitDone, 12},
	} {
		s := stored()
		out, _, err := s.with(t, "", append([]string{"delete"}, strings.Fields(c.args)...)...)
		if exitCode(err) != c.code || out != c.out || len(s.keys) != c.left {
			t.Errorf("%s: %v, printed %q, left %q", c.args, err, out, slices.Sorted(maps.Keys(s.keys)))
		}
	}
}

// One that fails in the middle says how far it came.
func TestDeletePrefixThatFails(t *testing.T) {
	s := &fakeStore{keys: map[string][]byte{"a": nil, "b": nil, "c": nil, "d": nil}, fails: map[string]error{"b": client.ErrNotSaved}}
	_, _, err := s.with(t, "", "delete", "--prefix=", "--yes")
	if exitCode(err) != exitFailed || !strings.HasPrefix(fmt.Sprint(err), "delete: key 2, b: not saved; 3 deleted, 1 failed (key 2): it may be run again") || len(s.keys) != 1 {
		t.Errorf("%v, left %d", err, len(s.keys))
	}
}
