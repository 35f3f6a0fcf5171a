package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gus/agent/client"
	"gus/membership"
	"gus/quic"
	"gus/register"
	"gus/snapshot"
)

// restoreVariable makes of a test binary the process that is killed (TestMain): it restores or recovers,
// as the variable says, tells each step, and waits before one of them to be killed.
const restoreVariable = "GUS_AGENT_TEST_RESTORE"

// beRestorer does not return.
func beRestorer(what string) {
	words := strings.Split(what, "|")
	verb, file, data, last := words[0], words[1], words[2], words[3]
	stepped := func(step string) {
		fmt.Println(step)
		if step == last {
			time.Sleep(time.Hour)
		}
	}
	var err error
	if verb == "restore" {
		_, err = (&restoring{file: file, data: data, name: "new", stepped: stepped}).run()
	} else {
		r := &Recovery{Survey: Survey{Data: data}, stepped: stepped}
		if err = r.open(context.Background()); err == nil {
			_, err = r.Run(nil)
		}
	}
	fmt.Println("ended:", err)
	os.Exit(0)
}

// killAt runs verb in another process and kills it before the step, which it must come to. It
// returns the steps before it. Where step is empty it lets it end.
func killAt(t *testing.T, verb, file, data, step string) (steps []string) {
	t.Helper()
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), restoreVariable+"="+strings.Join([]string{verb, file, data, step}, "|"))
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	must(t, err)
	must(t, victim.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if said, ok := strings.CutPrefix(lines.Text(), "ended: "); ok {
			if step != "" || said != "<nil>" {
				t.Fatalf("%s ended with %s before the step %q", verb, said, step)
			}
			break
		}
		steps = append(steps, lines.Text())
		if lines.Text() == step {
			must(t, victim.Process.Kill())
			break
		}
	}
	_, _ = io.Copy(io.Discard, out)
	_ = victim.Wait() // it was killed
	return steps
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// somewhere makes a stopped site with some keys, below dir, and a backup of it.
func somewhere(t *testing.T, dir string, names ...string) (data, file string) {
	t.Helper()
	var founders []Founder
	for _, name := range names {
		founders = append(founders, Founder{Name: name, Data: filepath.Join(dir, name)})
	}
	must(t, Found(founders))
	data = founders[0].Data
	id, _, err := identify(data)
	must(t, err)
	done := make(chan error, 1)
	s, err := snapshot.Open(data, snapshot.Options{Cluster: id.Cluster.String(), Done: func(_ register.Seq, err error) { done <- err }})
	must(t, err)
	for i := range 50 {
		w := register.Write{Tag: register.Tag{TS: uint64(1000 + i), Owner: register.Voter(1 + i%len(names))}, Value: fmt.Append(nil, i), Decided: true}
		s.Save(register.Seq(i+1), []register.Record{{Key: fmt.Sprintf("key/%02d", i), Cur: w}})
		must(t, <-done)
	}
	must(t, s.Close())
	must(t, markDatabase(filepath.Join(data, membership.IdentityDir)))
	file = filepath.Join(dir, "backup")
	_, err = SaveStopped(data, Saving{File: file}, "test")
	must(t, err)
	return data, file
}

// keysAt returns how many keys the site in data has, and the id of its cluster.
func keysAt(t *testing.T, data string) (keys int, cluster string) {
	t.Helper()
	id, conf, err := identify(data)
	must(t, err)
	must(t, checkDatabase(data))
	d, err := snapshot.OpenDormant(data)
	must(t, err)
	if d.Cluster() != id.Cluster.String() {
		t.Fatalf("the database is of cluster %s, the identity of %s", d.Cluster(), id.Cluster)
	}
	_, err = d.Entries(func(e snapshot.Entry) error {
		keys++
		if e.Tag.Owner == id.Number && len(conf.Voters) == 1 {
			return fmt.Errorf("%s looks as if the new voter had written it", e.Key)
		}
		return nil
	})
	must(t, errors.Join(err, d.Close()))
	return keys, id.Cluster.String()
}

// A restore that is killed before any of its steps leaves no site, or the whole one; where there is none
// it can be done again.
func TestRestoreKilled(t *testing.T) {
	dir := t.TempDir()
	_, file := somewhere(t, dir, "a", "b", "c")
	whole := filepath.Join(dir, "whole")
	steps := killAt(t, "restore", file, whole, "")
	if keys, _ := keysAt(t, whole); keys != 50 || len(steps) < 6 {
		t.Fatalf("%d keys in the steps %q", keys, steps)
	}
	for i, step := range steps {
		data := filepath.Join(dir, fmt.Sprint("new", i))
		killAt(t, "restore", file, data, step)
		if i == len(steps)-1 {
			if keys, _ := keysAt(t, data); keys != 50 {
				t.Errorf("killed before %q: %d keys", step, keys)
			}
			continue
		}
		if _, _, err := identify(data); !errors.Is(err, ErrNoIdentity) {
			t.Fatalf("killed before %q there is a site, or: %v", step, err)
		}
		if _, err := Restore(file, data, "again", nil); err != nil {
			t.Fatalf("killed before %q, and then: %v", step, err)
		}
		if keys, _ := keysAt(t, data); keys != 50 {
			t.Errorf("killed before %q, and done again: %d keys", step, keys)
		}
		if exists(filepath.Join(data, aside)) {
			t.Errorf("killed before %q, and done again: something is left aside", step)
		}
	}
}

// A recovery that is killed before any of its steps leaves the old site as it was, or one
// that is finished by the next attempt; never an agent that starts on half of it.
func TestRecoverKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("begins again at each step")
	}
	whole, _ := somewhere(t, t.TempDir(), "a", "b", "c")
	_, old := keysAt(t, whole)
	steps := killAt(t, "recover", "", whole, "")
	if keys, now := keysAt(t, whole); keys != 50 || now == old || len(steps) < 8 {
		t.Fatalf("%d keys in cluster %s, the steps %q", keys, now, steps)
	}
	finished := 0
	for _, step := range steps {
		data, _ := somewhere(t, t.TempDir(), "a", "b", "c")
		_, old := keysAt(t, data)
		killAt(t, "recover", "", data, step)
		_, _, err := identify(data)
		if err != nil && !errors.Is(err, ErrNoIdentity) {
			t.Fatalf("killed before %q: %v", step, err)
		}
		wasWhole := err == nil
		if wasWhole {
			keysAt(t, data)
		} else if !strings.Contains(err.Error(), "run `gus recover` again") {
			t.Errorf("killed before %q: %v", step, err)
		}
		done, err := FinishRecovery(data)
		must(t, err)
		switch _, now := keysAt(t, data); {
		case done.Cluster != "":
			finished++
			if keys, _ := keysAt(t, data); keys != 50 || now != done.Cluster || now == old || done.Site != "a" {
				t.Errorf("killed before %q, finished as %+v, and there are %d keys of cluster %s", step, done, keys, now)
			}
			if keys, was := keysAt(t, done.Old); keys != 50 || was != old {
				t.Errorf("killed before %q: the old site has %d keys of cluster %s", step, keys, was)
			}
		case now != old || !wasWhole:
			t.Errorf("killed before %q: nothing to finish, in cluster %s", step, now)
		default:
			r, err := OpenRecovery(t.Context(), data)
			must(t, err)
			_, err = r.Run(nil)
			must(t, errors.Join(err, r.Close()))
			if keys, now := keysAt(t, data); keys != 50 || now == old {
				t.Errorf("killed before %q, and done again: %d keys of cluster %s", step, keys, now)
			}
		}
	}
	if finished == 0 {
		t.Error("no kill came while the old site was moved away")
	}
}

// What may be lost is said by what this site has heard of the others and looked at.
func TestSurvey(t *testing.T) {
	data, _ := somewhere(t, t.TempDir(), "a", "b", "c", "d")
	id, _, err := identify(data)
	must(t, err)
	done := make(chan error, 1)
	s, err := snapshot.Open(data, snapshot.Options{Cluster: id.Cluster.String(), Done: func(_ register.Seq, err error) { done <- err }})
	must(t, err)
	s.SetCursor("b", snapshot.Cursor{Database: 1, Seq: 90})
	s.SetCursor("c", snapshot.Cursor{Database: 2, Seq: 70})
	s.Save(51, []register.Record{
		{Heard: []register.Progress{{Voter: 2, Boot: 1, Saved: 100}, {Voter: 3, Boot: 1, Saved: 70}}},
		{Key: "open", Cur: register.Write{Tag: register.Tag{TS: 1 << 40, Owner: 2}}},
	})
	must(t, <-done)
	must(t, s.Close())
	r, err := OpenRecovery(t.Context(), data)
	must(t, err)
	defer r.Close()
	v := r.Survey
	want := []LostVoter{{Name: "b", Unseen: 10, Heard: true}, {Name: "c", Heard: true}, {Name: "d"}}
	if v.Keys != 51 || v.Unsettled != 1 || v.Quorum != 3 || v.Voters != 4 || v.Forgot || !slices.Equal(v.Others, want) {
		t.Errorf("%+v", v)
	}
	if !v.Newest.Equal(time.UnixMilli(1 << 24)) {
		t.Errorf("the newest is of %v", v.Newest)
	}
	for answered, refused := range map[int]bool{0: false, 1: false, 2: true, 3: true} {
		v.Answered = answered
		if v.quorumAnswers() != refused {
			t.Errorf("with %d others that answer: %v", answered, !refused)
		}
	}
	v.Role, v.Answered = string(quic.RoleObserver), 2
	if v.quorumAnswers() {
		t.Error("an observer counts")
	}
}

// The only voter of a new cluster goes on with what was restored: a deletion that is remembered, a
// write that was not settled, and versions that only grow.
func TestRestoredSiteGoesOn(t *testing.T) {
	inWorld(t, []string{"ca", "va", "ir"}, func(w *world) {
		t := w.t
		ca := w.sites[0]
		must(t, ca.set("k", "1").err())
		must(t, ca.set("gone", "1").err())
		must(t, ca.ask(t.Context(), "DELETE", kvPath+"gone", "5s", "").err())
		before := ca.get("k").header[client.HeaderVersion][0]
		// A write that nobody else hears of is in the backup of its site, not settled.
		w.cutOff(ca, true)
		w.fails(ca.ask(t.Context(), "PUT", kvPath+"alone", "1s", "2"), client.ErrUnknownOutcome)
		file := filepath.Join(w.dir, "backup")
		must(t, os.WriteFile(file, backupFrom(t, ca), 0o600))
		b, err := VerifyBackup(file, nil)
		must(t, err)
		if b.Site != "ca" || b.Deleted != 1 || b.Unsettled != 1 {
			t.Errorf("%+v", b)
		}
		for _, s := range w.sites {
			s.kill()
		}
		fresh := &testSite{w: w, name: "new", addr: address(9)}
		w.sites = append(w.sites, fresh)
		_, err = Restore(file, fresh.data(), "new", nil)
		must(t, err)
		fresh.start()
		w.await(func() bool { return fresh.status().Voting.OK })
		w.want(fresh.get("k"), "1")
		if v := fresh.get("k").header[client.HeaderVersion][0]; v != before {
			t.Errorf("version %s was %s", v, before)
		}
		w.want(fresh.get("alone"), "2")
		w.fails(fresh.get("gone"), client.ErrNotFound)
		must(t, fresh.set("k", "2").err())
		was, err := register.ParseTag(before)
		must(t, err)
		is, err := register.ParseTag(fresh.get("k").header[client.HeaderVersion][0])
		must(t, err)
		if !was.Less(is) || is.Owner == was.Owner {
			t.Errorf("version %v after %v", is, was)
		}
		if st := fresh.status(); st.Unsettled != 0 {
			t.Errorf("%d keys are not settled", st.Unsettled)
		}
	})
}

// backupFrom returns a backup that the site's local API sends.
func backupFrom(t *testing.T, s *testSite) []byte {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", snapshotPath, nil)
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.Bytes()
}

// Backups come by the plan, the newest few are kept, and a file that only looks like one of the
// site's stays. A disk that takes no more is told in status, and only there.
func TestBackupSchedule(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many backups")
	}
	inEmptyWorld(t, []string{"ca"}, func(w *world) {
		t := w.t
		dir := filepath.Join(w.dir, "shelf")
		must(t, os.Mkdir(dir, 0o700))
		foreign := filepath.Join(dir, "ca-20200101T000000Z.backup")
		must(t, os.WriteFile(foreign, []byte("somebody's"), 0o600))
		other := filepath.Join(dir, "notes.txt")
		must(t, os.WriteFile(other, nil, 0o600))
		ca := w.sites[0]
		ca.backups = BackupPlan{Every: time.Hour, Dir: dir, Keep: 3}
		w.settle()
		for i := range 6 {
			must(t, ca.set("k", fmt.Sprint(i)).err())
			time.Sleep(time.Hour)
		}
		time.Sleep(time.Minute)
		all := ownFiles(t, dir)
		if len(all) != 3 {
			t.Fatalf("there are %q", all)
		}
		for _, path := range all {
			_, err := VerifyBackup(path, nil)
			must(t, err)
		}
		newest := all[len(all)-1]
		if b := ca.status().Backups; b == nil || b.File != newest || b.Error != "" || b.Kept != 3 {
			t.Errorf("status says %+v, the newest is %s", b, newest)
		}
		// Nothing has changed: nothing that is older is pushed out.
		time.Sleep(5 * time.Hour)
		if again := ownFiles(t, dir); !slices.Equal(again, all) {
			t.Errorf("there were %q, and there are %q", all, again)
		}
		// The directory becomes a file: nothing can be saved.
		must(t, os.Rename(dir, dir+".away"))
		must(t, os.WriteFile(dir, nil, 0o600))
		must(t, ca.set("k", "more").err())
		time.Sleep(2 * time.Hour)
		st := ca.status()
		if st.Backups.Error == "" || !slices.ContainsFunc(st.Warnings, func(w client.Warning) bool { return w.Code == "backup_fails" }) {
			t.Errorf("status says %+v and warns %+v", st.Backups, st.Warnings)
		}
		w.want(ca.get("k"), "more")
		must(t, os.Remove(dir))
		must(t, os.Rename(dir+".away", dir))
		time.Sleep(10 * time.Minute)
		if b := ca.status().Backups; b.Error != "" {
			t.Errorf("once there is room: %+v", b)
		}
		if now := ownFiles(t, dir); len(now) != 3 || slices.Contains(all, now[2]) {
			t.Errorf("after it: %q", now)
		}
		for _, path := range []string{foreign, other} {
			if !exists(path) {
				t.Errorf("%s is gone", path)
			}
		}
	})
}

// ownFiles are the backups in dir, by name.
func ownFiles(t *testing.T, dir string) (paths []string) {
	t.Helper()
	all, err := ListBackups(dir)
	must(t, err)
	for _, b := range all {
		if b.Error == "" {
			paths = append(paths, b.File)
		}
	}
	slices.Sort(paths)
	return paths
}

// A backup that cannot be written, or reads back otherwise, leaves nothing behind and takes
// nothing away.
func TestSavingChangesNothingWhereItFails(t *testing.T) {
	dir := t.TempDir()
	_, file := somewhere(t, dir, "a")
	good, err := os.ReadFile(file)
	must(t, err)
	for _, c := range []struct {
		name string
		s    Saving
		fill func(io.Writer) error
	}{
		{"no room", Saving{File: file, Force: true}, func(w io.Writer) error {
			_, _ = w.Write(good[:len(good)/2])
			return errors.New("no space left on device")
		}},
		{"a disk that forgets", Saving{File: file, Force: true}, func(w io.Writer) error {
			_, err := w.Write(good[:len(good)-1])
			return err
		}},
		{"a file that is there", Saving{File: file}, func(w io.Writer) error {
			_, err := w.Write(good)
			return err
		}},
	} {
		if _, err := c.s.keep(t.Context(), c.fill); err == nil {
			t.Errorf("%s: no error", c.name)
		}
		now, err := os.ReadFile(file)
		must(t, err)
		left, err := filepath.Glob(filepath.Join(dir, ".*tmp*"))
		must(t, err)
		if !bytes.Equal(now, good) || len(left) > 0 {
			t.Errorf("%s: the file has changed, or %q is left", c.name, left)
		}
	}
}

// hungFile is a file on a disk that does not answer until it is let go.
type hungFile struct {
	backupFile
	letGo <-chan struct{}
}

func (h hungFile) Write(b []byte) (int, error) { <-h.letGo; return h.backupFile.Write(b) }

// A disk that hangs ends a backup after a while, with an error that names the file, so that the database is not
// held; there is no other one until what hangs has ended, and then all is as before. An agent stops meanwhile.
func TestABackupWhoseDiskHangs(t *testing.T) {
	inEmptyWorld(t, []string{"ca"}, func(w *world) {
		t := w.t
		ca := w.sites[0]
		dir := filepath.Join(w.dir, "shelf")
		ca.backups = BackupPlan{Every: time.Hour, Dir: dir, Keep: 3}
		hang := func() (letGo chan struct{}) {
			letGo = make(chan struct{})
			ca.schedule.mu.Lock()
			defer ca.schedule.mu.Unlock()
			ca.schedule.create = func(dir, pattern string) (backupFile, error) {
				f, err := createFile(dir, pattern)
				return hungFile{f, letGo}, err
			}
			return letGo
		}
		w.settle()
		time.Sleep(time.Minute)
		must(t, ca.set("k", "v").err())
		letGo := hang()
		time.Sleep(time.Hour + fileStall)
		if b := ca.status().Backups; !strings.Contains(b.Error, ".backup: its disk has not answered for 1m0s") {
			t.Errorf("while it hangs: %+v", b)
		}
		time.Sleep(time.Hour)
		if b := ca.status().Backups; !strings.Contains(b.Error, dir+": the disk still hangs on an earlier backup") {
			t.Errorf("later on: %+v", b)
		}
		close(letGo)
		time.Sleep(time.Hour)
		left, err := filepath.Glob(filepath.Join(dir, ".*"))
		must(t, err)
		if b := ca.status().Backups; b.Error != "" || len(ownFiles(t, dir)) != 2 || len(left) > 0 {
			t.Errorf("once it answers: %+v, %q, %q is left", b, ownFiles(t, dir), left)
		}
		defer close(hang())
		must(t, ca.set("k", "w").err())
		time.Sleep(time.Hour)
		ca.cancel()
		must(t, ca.ended())
	})
}

// fullFile is a file on a disk that is full.
type fullFile struct{ backupFile }

func (fullFile) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A backup that its disk does not take is told as one that could not be written: what the agent sends could be read.
func TestSavingOnAFullDisk(t *testing.T) {
	d := newDoor(t)
	if _, err := d.client.Set(t.Context(), "k", make([]byte, 600<<10)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	_, err := SaveRunning(t.Context(), d.client, Saving{File: file, create: func(dir, pattern string) (backupFile, error) {
		f, err := createFile(dir, pattern)
		return fullFile{f}, err
	}})
	if fmt.Sprint(err) != "save a backup: no space left on device" {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	if hidden, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*.tmp")); err != nil || len(left)+len(hidden) > 0 {
		t.Errorf("%v: %q and %q are left", err, left, hidden)
	}
}
