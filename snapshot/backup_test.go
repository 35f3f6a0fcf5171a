package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gus/register"
)

// origin is of the backups of these tests.
var origin = Origin{Site: "site-a", Program: "test"}

// entriesOf is what a state comes to.
func entriesOf(st state) map[string]Entry {
	all := map[string]Entry{}
	for _, r := range st {
		if e, ok := entryOf(r); ok {
			all[e.Key] = e
		}
	}
	return all
}

// unpack reads a backup, which must be whole.
func unpack(t testing.TB, b []byte) (map[string]Entry, Summary) {
	t.Helper()
	r, err := ReadBackup(bytes.NewReader(b))
	must(t, err)
	all := map[string]Entry{}
	for e, err := range r.Entries() {
		must(t, err)
		all[e.Key] = e
	}
	sum, whole := r.Summary()
	if !whole {
		t.Fatal("the backup was read to its end and is not whole")
	}
	return all, sum
}

// A backup that is made at any moment, while the log is folded or not, has exactly what a
// replay gives, and so has one of the stopped directory.
func TestBackupIsTheStateAtOneSave(t *testing.T) {
	dir := freshDir(t)
	s := begin(t, dir, small)
	last := register.Seq(0)
	for _, more := range []register.Seq{0, 1, 7, 30, 100} {
		s.fill(t, last+1, last+more)
		last += more
		var out bytes.Buffer
		sum, err := s.Backup(&out, origin)
		must(t, err)
		entries, read := unpack(t, out.Bytes())
		if want := entriesOf(replayed(last)); !reflect.DeepEqual(entries, want) {
			t.Fatalf("after save %d the backup has %d keys, want %d, or other values", last, len(entries), len(want))
		}
		if sum != read || sum.Seq != last || sum.Site != "site-a" || sum.Cluster != cluster || sum.Database != s.Database() {
			t.Fatalf("wrote %+v, read %+v", sum, read)
		}
		if int64(out.Len()) != sum.Size {
			t.Fatalf("%d bytes, said %d", out.Len(), sum.Size)
		}
	}
	s.end(t)

	d, err := OpenDormant(dir)
	must(t, err)
	if _, err := start(dir, small); !errors.Is(err, ErrLocked) {
		t.Errorf("a store opens meanwhile: %v", err)
	}
	if d.Cluster() != cluster {
		t.Errorf("it is of cluster %q", d.Cluster())
	}
	var out bytes.Buffer
	_, err = d.Backup(&out, origin)
	must(t, err)
	if entries, _ := unpack(t, out.Bytes()); !reflect.DeepEqual(entries, entriesOf(replayed(last))) {
		t.Error("the backup of the stopped directory has other keys")
	}
	must(t, d.Close())
	again := begin(t, dir, small)
	if again.Boot() != 2 {
		t.Errorf("boot is %d: looking counts as a start", again.Boot())
	}
}

// Backups that are made beside saves and folding have exactly what was saved up to the save
// that they name.
func TestBackupBesideSaves(t *testing.T) {
	s := beginWith(t, freshDir(t), Options{bounds: small, Epoch: time.Millisecond})
	const last = 150
	type made struct {
		seq     register.Seq
		entries map[string]Entry
	}
	stop, done := make(chan struct{}), make(chan []made)
	go func() {
		var all []made
		defer func() { done <- all }()
		for {
			var out bytes.Buffer
			sum, err := s.Backup(&out, origin)
			if err != nil {
				t.Error(err)
				return
			}
			entries, _ := unpack(t, out.Bytes())
			all = append(all, made{sum.Seq, entries})
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	s.fill(t, 1, last)
	close(stop)
	all := <-done
	for _, m := range all {
		if want := entriesOf(replayed(m.seq)); !reflect.DeepEqual(m.entries, want) {
			t.Fatalf("the backup up to save %d has %d keys, want %d, or other values", m.seq, len(m.entries), len(want))
		}
	}
	t.Logf("%d backups", len(all))
}

// A backup becomes a database that holds what it had, each key settled, and that goes on
// as any other.
func TestBuild(t *testing.T) {
	s := begin(t, freshDir(t), small)
	s.fill(t, 1, 60)
	var out bytes.Buffer
	_, err := s.Backup(&out, origin)
	must(t, err)

	dir := filepath.Join(t.TempDir(), "new")
	must(t, os.Mkdir(dir, 0o700))
	r, err := ReadBackup(&out)
	must(t, err)
	must(t, Build(dir, cluster, r.Entries()))
	built := begin(t, dir, small)
	want := state{}
	for _, e := range entriesOf(replayed(60)) {
		want[e.Key] = e.record()
	}
	mustEqual(t, recovered(t, built.Records()), want)
	st := built.Stats()
	if built.Boot() != 1 || built.Last() != 1 || st.Records != int64(len(want)) || st.EpochKeys != int64(len(want)) {
		t.Errorf("boot %d, last %d, %+v", built.Boot(), built.Last(), st)
	}
	if built.Database() == s.Database() {
		t.Error("it has the same id as the one that it was made from: cursors would fit")
	}
	for seq := register.Seq(61); seq <= 100; seq++ {
		must(t, built.save(seq, workload(seq)))
		want.apply(workload(seq)...)
	}
	mustEqual(t, recovered(t, built.Records()), want)
	built.end(t)
	built = begin(t, dir, small)
	mustEqual(t, recovered(t, built.Records()), want)
}

// A backup's newest write of a key is the one that a read by the only voter that is left
// would return.
func TestEntryOf(t *testing.T) {
	w := func(ts uint64, owner register.Voter, value string) register.Write {
		return register.Write{Tag: register.Tag{TS: ts, Owner: owner}, Value: []byte(value)}
	}
	decided := w(5, 1, "old")
	decided.Decided = true
	for _, c := range []struct {
		name   string
		record register.Record
		want   string
	}{
		{"settled", register.Record{Key: "k", Cur: decided}, "old"},
		{"held by a quorum", register.Record{Key: "k", Cur: w(5, 1, "old"), Readable: true}, "old"},
		{"accepted", register.Record{Key: "k", Cur: w(5, 1, "old")}, "old?"},
		{"a newer one aside", register.Record{Key: "k", Cur: decided, Recs: []register.Rec{{Write: w(6, 2, "aside")}}}, "aside?"},
		{"an older one aside", register.Record{Key: "k", Cur: decided, Recs: []register.Rec{{Write: w(4, 2, "aside")}}}, "old"},
		{"the site's own under way", register.Record{Key: "k", Cur: decided, Pending: &register.Pending{Write: w(7, 1, "mine")}}, "mine?"},
		{"nothing", register.Record{Key: "k"}, "none"},
		{"the voter's note", register.Record{Heard: []register.Progress{{Voter: 1}}}, "none"},
	} {
		got := "none"
		if e, ok := entryOf(c.record); ok {
			got = string(e.Value)
			if e.Unsettled {
				got += "?"
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// sample returns a small backup of some frames.
func sample(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	b, err := newBackupWriter(&out, Origin{Cluster: cluster, Site: "site-a", Program: "test", Time: time.UnixMilli(1_700_000_000_000), Epoch: 3, Seq: 9, Database: 7})
	must(t, err)
	for i := range 40 {
		e := Entry{Key: fmt.Sprintf("key/%02d", i), Tag: register.Tag{TS: uint64(1000 + i), Owner: 2}, Value: bytes.Repeat([]byte{byte(i)}, i)}
		if i%7 == 0 {
			e.Value, e.Deleted = nil, true
		}
		must(t, b.add(&e))
		if i%10 == 9 {
			must(t, b.end())
			b.begin(kindEntries)
		}
	}
	_, err = b.finish()
	must(t, err)
	return out.Bytes()
}

// Each wrong bit, each early end, each further byte and each piece that is out of place is found,
// and the whole is read.
func TestBackupDamage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and no two goroutines meet")
	}
	good := sample(t)
	sum, err := verifyBackup(bytes.NewReader(good), nil)
	must(t, err)
	if sum.Keys != 34 || sum.Deleted != 6 || sum.Epoch != 3 || sum.Owner != 2 || sum.Size != int64(len(good)) {
		t.Errorf("read %+v", sum)
	}
	refused := func(what string, b []byte) {
		t.Helper()
		_, err := verifyBackup(bytes.NewReader(b), nil)
		switch {
		case err == nil:
			t.Fatalf("%s: nothing is found", what)
		case !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNoBackup) && !errors.Is(err, ErrNewer):
			t.Fatalf("%s: %v", what, err)
		case strings.Contains(err.Error(), "\n"):
			t.Fatalf("%s: more than a line: %v", what, err)
		}
	}
	for i := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			refused(fmt.Sprintf("bit %d of byte %d", bit, i), bad)
		}
		refused(fmt.Sprintf("%d bytes", i), good[:i])
	}
	refused("a byte more", append(bytes.Clone(good), 0))
	refused("twice", append(bytes.Clone(good), good...))
	_, err = verifyBackup(strings.NewReader("gus backup 2\nand what a later version writes"), nil)
	if !errors.Is(err, ErrNewer) {
		t.Errorf("a newer format: %v", err)
	}
	_, err = verifyBackup(strings.NewReader(`{"key":"app/port","value":"8080"}`), nil)
	if !errors.Is(err, ErrNoBackup) {
		t.Errorf("an export: %v", err)
	}
}

// Where a stream breaks off because the source fails, its reader hears why.
func TestBackupFails(t *testing.T) {
	var out bytes.Buffer
	b, err := newBackupWriter(&out, origin)
	must(t, err)
	must(t, b.add(&Entry{Key: "a", Tag: register.Tag{TS: 1, Owner: 1}}))
	b.fail(errors.New("the disk is on fire"))
	if _, err := verifyBackup(&out, nil); err == nil || !strings.Contains(err.Error(), "on fire") {
		t.Errorf("the reader hears %v", err)
	}
	if _, err := newBackupWriter(brokenWriter{}, origin); err == nil {
		t.Error("nobody hears that nothing can be written")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// GlanceBackup says the same as reading all, and finds an end that is missing.
func TestGlance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	good := sample(t)
	must(t, os.WriteFile(path, good, 0o600))
	glanced, err := GlanceBackup(path)
	must(t, err)
	verified, err := VerifyBackup(path, nil)
	must(t, err)
	verified.Owner = 0
	if glanced != verified {
		t.Errorf("glanced %+v, verified %+v", glanced, verified)
	}
	must(t, os.WriteFile(path, good[:len(good)-1], 0o600))
	if _, err := GlanceBackup(path); !errors.Is(err, ErrDamaged) {
		t.Errorf("cut short: %v", err)
	}
}

// Whatever the bytes are, they are refused in one line or read; what is read can be
// written again and is the same.
func FuzzReadBackup(f *testing.F) {
	good := sample(f)
	f.Add(good)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 8 {
		bad := bytes.Clone(good)
		bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		f.Add(bad)
	}
	f.Add([]byte("gus backup 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ReadBackup(bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		w, err := newBackupWriter(&again, r.Origin())
		must(t, err)
		for e, err := range r.Entries() {
			if err != nil {
				return
			}
			must(t, w.add(&e))
		}
		sum, err := w.finish()
		must(t, err)
		if read, whole := r.Summary(); !whole || sum.Keys != read.Keys || sum.Deleted != read.Deleted || sum.Owner != read.Owner {
			t.Fatalf("read %+v (%v), wrote %+v", read, whole, sum)
		}
	})
}
