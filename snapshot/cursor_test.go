package snapshot

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gus/register"
)

// crashed returns a data directory with what a crash of s at this moment would
// leave.
func crashed(t testing.TB, s *session) string {
	t.Helper()
	return copied(t, dirOf(s))
}

func dirOf(s *session) string { return filepath.Dir(s.path) }

func copied(t testing.TB, dir string) string {
	t.Helper()
	into := freshDir(t)
	must(t, os.Mkdir(into, 0o700))
	for name, data := range contents(t, dir) {
		write(t, filepath.Join(into, name), []byte(data))
	}
	return into
}

// cursorsIn are those that a start in dir finds.
func cursorsIn(t testing.TB, dir string) map[string]Cursor {
	t.Helper()
	s := begin(t, dir, small)
	defer s.end(t)
	return s.Cursors()
}

// Cursors wait for a transaction to join, not for long, and not for one that
// closing makes.
func TestCursors(t *testing.T) {
	dir := freshDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, dir, small)
		s.fill(t, 1, 3)
		a, b := Cursor{7, 100}, Cursor{8, 1 << 62}
		s.SetCursor("a", a)
		s.fill(t, 4, 4) // joined
		if got := cursorsIn(t, crashed(t, s)); !maps.Equal(got, map[string]Cursor{"a": a}) {
			t.Errorf("after a save there are %v", got)
		}
		s.SetCursor("b", b)
		a.Seq++
		s.SetCursor("a", a)
		time.Sleep(2 * cursorDelay)
		synctest.Wait()
		want := map[string]Cursor{"a": a, "b": b}
		if got := cursorsIn(t, crashed(t, s)); !maps.Equal(got, want) {
			t.Errorf("after a while there are %v", got)
		}
		before := touched(t, dir)
		s.SetCursor("a", a) // no news
		time.Sleep(time.Minute)
		synctest.Wait()
		if after := touched(t, dir); after == before {
			t.Error("the saves were not made an epoch") // and so the next comparison means nothing
		}
		before = touched(t, dir)
		s.SetCursor("b", b)
		time.Sleep(time.Minute)
		synctest.Wait()
		if after := touched(t, dir); after != before {
			t.Error("a cursor that is no news was saved")
		}
		s.SetCursor("b", Cursor{})
		delete(want, "b")
		s.end(t)
		if got := cursorsIn(t, dir); !maps.Equal(got, want) {
			t.Errorf("after closing there are %v", got)
		}
	})
}

// There is a bound, and one line about it.
func TestTooManyCursors(t *testing.T) {
	s := begin(t, freshDir(t), small)
	for i := range maxCursors + 10 {
		s.SetCursor(fmt.Sprint(i), Cursor{1, register.Seq(i) + 1})
	}
	s.SetCursor("3", Cursor{1, 1000})
	dir := dirOf(s)
	s.end(t)
	if n := strings.Count(s.logged.String(), "too many cursors"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
	got := cursorsIn(t, dir)
	if len(got) != maxCursors || got["3"] != (Cursor{1, 1000}) || got["70"] != (Cursor{}) {
		t.Errorf("there are %v", got)
	}
}

// A cursor is good across starts of the database that gave it out, and for nothing else: also
// not for an image of it that knows nothing of the time in which that was.
func TestResume(t *testing.T) {
	dir, image := freshDir(t), freshDir(t)
	s := begin(t, dir, small)
	s.fill(t, 1, 10)
	old := Cursor{s.Database(), 7}
	s.end(t)
	must(t, os.CopyFS(image, os.DirFS(dir)))
	must(t, os.Chmod(image, 0o700))
	s = begin(t, dir, small)
	s.fill(t, 11, 20)
	lost := Cursor{s.Database(), 15}
	for c, want := range map[Cursor]bool{old: true, lost: true, {lost.Database, 21}: false, {old.Database, 11}: false, {1, 1}: false, {}: false} {
		if after, ok := s.Resume(c); ok != want || ok && after != c.Seq || !ok && after != 0 {
			t.Errorf("%v: %d %v", c, after, ok)
		}
	}
	s.end(t)
	s = begin(t, image, small)
	s.fill(t, 11, 30)
	for c, want := range map[Cursor]bool{old: true, lost: false} {
		if _, ok := s.Resume(c); ok != want {
			t.Errorf("the image, %v: %v", c, ok)
		}
	}
	s.end(t)
	for range keptStarts {
		begin(t, image, small).end(t)
	}
	s = begin(t, image, small)
	if _, ok := s.Resume(old); ok {
		t.Error("a cursor of a start that is forgotten is good")
	}
}
