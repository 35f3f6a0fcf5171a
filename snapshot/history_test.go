package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gus/register"
)

// memory is what saves come to, with the settled write of each key that was the newest one
// after each.
type memory struct {
	records state
	settled map[string]register.Write
	seq     register.Seq
}

func newMemory() *memory { return &memory{state{}, map[string]register.Write{}, 0} }

// to goes on with the workload up to that save.
func (m *memory) to(seq register.Seq) {
	for m.seq < seq {
		m.seq++
		m.take(workload(m.seq)...)
	}
}

func (m *memory) take(records ...register.Record) {
	for _, r := range records {
		m.records.apply(r)
		if now := m.records[r.Key]; isVersion(now) {
			m.settled[r.Key] = now.Cur
		}
	}
}

// mustRemember looks whether the last epochs of a store, or a part of them, can be read as they were.
func mustRemember(t testing.TB, s *Store, most int) (epochs int) {
	t.Helper()
	list, err := s.Timeline(0, most)
	must(t, err)
	slices.Reverse(list)
	m := newMemory()
	for i, e := range list {
		m.to(e.Seq)
		if i < 3 || i%(1+len(list)/10) == 0 || i == len(list)-1 {
			mustBe(t, s, e, m.settled)
		}
	}
	return len(list)
}

// mustBe looks whether an epoch is what it should be, in pages, and key by key.
func mustBe(t testing.TB, s *Store, e Moment, want map[string]register.Write) {
	t.Helper()
	living := 0
	for key, w := range want {
		v, ok, err := s.At(e.Number, key)
		must(t, err)
		if !ok || v.Tag != w.Tag || !bytes.Equal(v.Value, w.Value) || v.Deleted != w.Deleted || v.Size != len(w.Value) || v.Epoch > e.Number {
			t.Fatalf("epoch %d, save %d: %s is %v %v, want %v", e.Number, e.Seq, key, ok, v.Tag, w.Tag)
		}
		if !w.Deleted {
			living++
		}
	}
	after := ""
	for pages := 0; ; pages++ {
		list, next, err := s.PageAt(e.Number, "", after, 50)
		must(t, err)
		for _, v := range list {
			if w := want[v.Key]; v.Key <= after || w.Tag != v.Tag || w.Deleted || v.Value != nil {
				t.Fatalf("epoch %d has %s of %v in its list, want %v", e.Number, v.Key, v.Tag, w.Tag)
			}
			living, after = living-1, v.Key
		}
		if after = next; next == "" {
			break
		}
	}
	if living != 0 {
		t.Fatalf("epoch %d lacks %d keys in its list", e.Number, living)
	}
}

// Each epoch can be read as it was: key by key, in pages, and in the history of a key.
func TestHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and no two goroutines meet")
	}
	dir := freshDir(t)
	s := beginWith(t, dir, Options{bounds: small, Epoch: time.Millisecond})
	s.fill(t, 1, 400)
	if n := mustRemember(t, s.Store, 1000); n < 10 {
		t.Errorf("there are %d epochs", n)
	}
	s.end(t)
	s = begin(t, dir, never)
	mustRemember(t, s.Store, 1000)
	for key := range replayed(400) {
		list, err := s.History(key, 0, 1000)
		must(t, err)
		for i, v := range list {
			if i > 0 && (v.Epoch >= list[i-1].Epoch || !v.Tag.Less(list[i-1].Tag)) {
				t.Fatalf("the history of %s has %+v after %+v", key, v, list[i-1])
			}
			found, ok, err := s.Find(key, v.Tag)
			if must(t, err); !ok || found.Epoch != v.Epoch || len(found.Value) != v.Size {
				t.Fatalf("%s of %v is found as %v %v", key, v.Tag, ok, found)
			}
		}
		if len(list) > 1 {
			older, err := s.History(key, list[0].Epoch, 1)
			if must(t, err); len(older) != 1 || older[0].Tag != list[1].Tag {
				t.Fatalf("before %d, %s was %v", list[0].Epoch, key, older)
			}
		}
	}
	newest := s.Stats().Epoch
	for _, epoch := range []uint64{1, newest + 1} {
		if _, _, err := s.At(epoch, "hot/1"); !errors.Is(err, ErrNoEpoch) || errors.Is(err, ErrDamaged) {
			t.Errorf("epoch %d is read: %v", epoch, err)
		}
	}
}

// A write that was replaced before it was settled is no version. While the newest one is not settled, the
// one before it is what the epoch shows, however long that takes.
func TestOnlySettledWritesAreVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beginWith(t, freshDir(t), Options{bounds: seldom, Epoch: time.Second, Retain: Retention{Epochs: 2}})
		mark := func(ts uint64) register.Record {
			return register.Record{Key: "k", Mark: register.Tag{TS: ts, Owner: 2}, Readable: true}
		}
		seq, shown := register.Seq(0), uint64(0)
		step := func(want uint64, records ...register.Record) {
			t.Helper()
			seq++
			must(t, s.save(seq, records))
			time.Sleep(2 * time.Second)
			synctest.Wait()
			v, ok, err := s.At(s.Stats().Epoch, "k")
			if must(t, err); ok != (want > 0) || v.Tag.TS != want {
				t.Fatalf("after save %d there is %v of %v, want %d", seq, ok, v.Tag, want)
			}
			if v.Tag.TS == shown && v.Epoch == s.Stats().Epoch && want != 0 {
				t.Errorf("after save %d, %d is said to be new", seq, want)
			}
			shown = v.Tag.TS
		}
		step(0, record("k", 1, 5))
		step(0, record("k", 2, 5))
		step(2, mark(2))
		step(2, mark(2))
		for ts := uint64(3); ts < 3+2*compactEach; ts++ {
			step(2, record("k", ts, 5))
		}
		step(202, mark(202), record("k", 203, 5))                                  // settled and replaced within an epoch
		step(204, record("k", 204, 5), mark(204), record("k", 205, 5))             // likewise
		step(206, record("k", 206, 5), mark(206))                                  // and at rest
		step(206, record("k", 207, 5), record("k", 208, 5))                        // and away from it
		step(209, record("k", 209, 5), mark(209), record("k", 210, 5), mark(2000)) // a mark on nothing
		list, err := s.History("k", 0, 10)
		must(t, err)
		var got []uint64
		for _, v := range list {
			got = append(got, v.Tag.TS)
		}
		if want := []uint64{209, 206, 204, 202, 2}; !slices.Equal(got, want) {
			t.Errorf("the versions are %v, want %v", got, want)
		}
		s.end(t)
	})
}

// What is superseded goes once it is older than the retention, in time that the store was open.
// Nothing goes because a clock says so, and none stays.
func TestRetention(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and no two goroutines meet")
	}
	dir := freshDir(t)
	synctest.Test(t, func(t *testing.T) {
		var jump time.Duration
		now := func() time.Time { return time.Now().Add(jump) }
		opts := Options{bounds: seldom, Epoch: time.Minute, Retain: Retention{For: 5 * time.Hour}, now: now}
		s := beginWith(t, dir, opts)
		seq := register.Seq(0)
		epochs := func(n int) {
			for range n {
				seq++
				must(t, s.save(seq, workload(seq)))
				time.Sleep(time.Minute + time.Second)
				synctest.Wait()
			}
		}
		oldest := func() uint64 { return s.Stats().OldestEpoch }
		epochs(2)
		first := oldest()
		for i, by := range []time.Duration{30 * 24 * time.Hour, -60 * 24 * time.Hour, 10 * 365 * 24 * time.Hour, 0} {
			jump = by
			epochs(50)
			if oldest() != first {
				t.Fatalf("after jump %d of the clock the oldest epoch is %d, it was %d", i, oldest(), first)
			}
		}
		s.end(t)
		time.Sleep(30 * 24 * time.Hour) // closed
		s = beginWith(t, dir, opts)
		epochs(80)
		if oldest() != first {
			t.Fatalf("a month away has cost epochs: the oldest one is %d, it was %d", oldest(), first)
		}
		mustRemember(t, s.Store, 1000)
		epochs(2 * compactEach)
		list, err := s.Timeline(0, 1000)
		must(t, err)
		if n := len(list); n < 300 || n > 300+compactEach || oldest() != list[n-1].Number || s.Stats().KeptEpochs != int64(n) {
			t.Errorf("%d epochs are kept, of one a minute for five hours, from %d to %d", n, list[n-1].Number, oldest())
		}
		mustRemember(t, s.Store, 1000)
		if n := ask(t, s.conn, fmt.Sprint("SELECT count(*) FROM versions WHERE until <= ", oldest())); n != 0 {
			t.Errorf("%d versions are there that nobody can ask for", n)
		}
		s.end(t)
		s = beginWith(t, dir, opts)
		mustRemember(t, s.Store, 1000)
		s.end(t)
	})
}

// The history stays within its bytes, or its number of epochs, and the database with it.
func TestHistoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and no two goroutines meet")
	}
	for name, r := range map[string]Retention{"bytes": {Bytes: 1 << 18}, "epochs": {Epochs: 20}} {
		t.Run(name, func(t *testing.T) {
			dir := freshDir(t)
			synctest.Test(t, func(t *testing.T) {
				s := beginWith(t, dir, Options{bounds: seldom, Epoch: time.Second, Retain: r})
				var size int64
				for i := range 5 * compactEach {
					seq := register.Seq(i + 1)
					must(t, s.save(seq, slices.Concat(workload(seq), workload(seq+1000), workload(seq+2000))))
					time.Sleep(2 * time.Second)
					synctest.Wait()
					st := s.Stats()
					if r.Bytes > 0 && st.HistoryBytes > 2*r.Bytes || st.KeptEpochs > 20+compactEach && r.Epochs > 0 {
						t.Fatalf("after %d epochs: %+v", i+1, st)
					}
					if i == 3*compactEach {
						size = st.DatabaseBytes
					}
				}
				st := s.Stats()
				if st.DatabaseBytes > size+size/2 {
					t.Errorf("the database grows from %d to %d", size, st.DatabaseBytes)
				}
				s.end(t)
				s = beginWith(t, dir, Options{bounds: never})
				if again := s.Stats(); again.HistoryBytes != st.HistoryBytes || again.OldestEpoch != st.OldestEpoch || again.KeptEpochs != st.KeptEpochs {
					t.Errorf("after a start the history is %+v, it was %+v", again, st)
				}
				s.end(t)
			})
		})
	}
}

// unchecked are the options of a store that finds bad pages as one does beneath which they go bad while it
// is open: when it reads them.
var unchecked = Options{bounds: never, Epoch: time.Hour, checkTime: time.Nanosecond}

// remembered makes a database with a past. It returns what the database is told to say of that, and which pages
// its tables and indexes have.
func remembered(t *testing.T) (data string, want map[string]string, pages map[string][]int) {
	t.Helper()
	s := beginWith(t, freshDir(t), Options{bounds: small, Epoch: time.Millisecond})
	s.fill(t, 1, 200)
	for s.Stats().LogRows > 0 { // then nothing changes by itself any more
		time.Sleep(time.Millisecond)
	}
	dir := dirOf(s)
	s.end(t)
	s = beginWith(t, dir, unchecked)
	want = told(t, s.Store)
	if len(want) < 50 {
		t.Fatalf("there are %d answers", len(want))
	}
	pages = map[string][]int{}
	rows, err := s.conn.QueryContext(t.Context(), "SELECT name, pageno FROM dbstat ORDER BY pageno")
	must(t, err)
	for rows.Next() {
		var table string
		var page int
		must(t, rows.Scan(&table, &page))
		pages[table] = append(pages[table], page)
	}
	must(t, rows.Err())
	s.end(t)
	return contents(t, dir)[databaseName], want, pages
}

// A wrong bit in what is kept of the past, in the records, or in the indexes on them, hides nothing: whoever
// asks is told the truth, or that something is damaged. Else a rollback would delete what was hidden.
func TestAnyWrongBitOfHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and no two goroutines meet")
	}
	whole, want, pages := remembered(t)
	const flips = 20
	rng := rand.New(rand.NewPCG(15, 16))
	for _, table := range []string{"versions", "of_key", "records", "keys"} {
		found, at := 0, pages[table]
		for range flips {
			data := []byte(whole)
			bit := (at[rng.IntN(len(at))]-1)*4096*8 + rng.IntN(4096*8)
			data[bit/8] ^= 1 << (bit % 8)
			if unlikeTold(t, data, want) {
				found++
			}
		}
		t.Logf("%s, %d pages: %d of %d wrong bits were found, the others do no harm", table, len(at), found, flips)
		if found == 0 {
			t.Errorf("%s: none was found", table)
		}
	}
}

// A page of which the second half is hidden, as SQLite cannot tell from one that has no more, hides
// nothing from those who ask.
func TestHalfAPage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and no two goroutines meet")
	}
	whole, want, pages := remembered(t)
	for _, table := range []string{"versions", "of_key", "records", "keys"} {
		at := pages[table]
		for i := 0; i < len(at); i += 1 + len(at)/8 {
			data := []byte(whole)
			halve(data, at[i])
			if !unlikeTold(t, data, want) {
				t.Errorf("half of page %d of %s is missing, and nobody is told", at[i], table)
			}
		}
	}
}

// halve takes the second half of a page's cells away.
func halve(data []byte, page int) {
	cells := data[(page-1)*4096+3:][:2]
	binary.BigEndian.PutUint16(cells, binary.BigEndian.Uint16(cells)/2)
}

// A pass that does not find a record whose page has gone bad does not take it for a new one: with it, what this
// voter has promised would be gone.
func TestHiddenRecordIsNotNew(t *testing.T) {
	whole, _, pages := remembered(t)
	data := []byte(whole)
	for _, page := range pages["records"] {
		if data[(page-1)*4096] == 10 { // a leaf
			halve(data, page)
		}
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	write(t, filepath.Join(dir, databaseName), data)
	opts := unchecked
	opts.bounds, opts.Epoch = small, time.Millisecond
	s, err := startWith(dir, opts)
	must(t, err)
	for i := 0; err == nil && i < 400; i++ {
		seq := s.Last() + 1
		err = s.save(seq, workload(seq))
	}
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "the record of ") {
		t.Errorf("saving ends with %v", err)
	}
	if err := s.Close(); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}

// unlikeTold says whether a database with a wrong bit says that it is damaged. What it says else must be true.
func unlikeTold(t *testing.T, data []byte, want map[string]string) (found bool) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	must(t, err)
	defer os.RemoveAll(dir)
	write(t, filepath.Join(dir, databaseName), data)
	s, err := startWith(dir, unchecked)
	if err != nil {
		if !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		return true
	}
	for question, got := range told(t, s.Store) {
		found = found || got == "damaged"
		if got != "damaged" && got != want[question] {
			t.Fatalf("%s: %.2000s, it was %.2000s", question, got, want[question])
		}
	}
	s.end(t)
	return found
}

// told is what a store says of the past, by question.
func told(t *testing.T, s *Store) map[string]string {
	t.Helper()
	list, err := s.Timeline(0, 1000)
	must(t, err)
	answers := map[string]string{}
	answer := func(err error, question string, v any) {
		switch {
		case err == nil:
			answers[question] = fmt.Sprint(v)
		case errors.Is(err, ErrDamaged):
			answers[question] = "damaged"
		default:
			t.Fatal(question, err)
		}
	}
	each := 1 + len(list)/8
	for i, e := range list {
		if i%each != 0 {
			continue
		}
		page, next, err := s.PageAt(e.Number, "", "", 1000)
		answer(err, fmt.Sprintf("page of %d", e.Number), fmt.Sprint(page, next))
		for key := 0; key < 20 && i%(2*each) == 0; key++ {
			key := fmt.Sprintf("cold/%d", key*5)
			v, ok, err := s.At(e.Number, key)
			answer(err, fmt.Sprintf("%s at %d", key, e.Number), fmt.Sprint(v, ok))
		}
	}
	for i := range 5 {
		key := fmt.Sprintf("hot/%d", i)
		versions, err := s.History(key, 0, 1000)
		answer(err, "history of "+key, versions)
		_, ok, err := s.Find(key, register.Tag{TS: 1 << 40})
		answer(err, "a version of "+key+" that never was", ok)
	}
	return answers
}
