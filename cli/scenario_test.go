//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gus/agent/client"
)

const (
	scenarioPrefix = "conf/"
	scenarioExec   = "dirsum >>../sums" // a line for each run, beside the directory
	scenarioFiles  = 200
)

// TestFilesOfEightSites is the story of three voters and five observers that keep the
// same directory while they are killed, cut off and frozen, and changed meanwhile: in the end all
// have the same files, each has run its command after its last change, and says so.
//
// What is chosen comes of a seed, which the log tells and GUS_SCENARIO_SEED sets.
func TestFilesOfEightSites(t *testing.T) {
	s := newScenario(t)
	s.makeSource()
	s.push(s.sites[0])
	s.settle("after the first push", s.sites)

	kinds := s.rng.Perm(len(faults))
	for round, voter := range s.rng.Perm(3) {
		observers := s.rng.Perm(5)
		victims := []*runSite{s.sites[voter], s.sites[3+observers[0]], s.sites[3+observers[1]]}
		var heals []func()
		for i, v := range victims {
			f := faults[kinds[(round+i)%len(faults)]]
			s.note("%s: %s", v.name, f.name)
			heals = append(heals, f.begin(s, v))
		}
		others := slices.DeleteFunc(slices.Clone(s.sites), func(x *runSite) bool { return slices.Contains(victims, x) })
		s.change(others)
		s.settle("without "+victims[0].name, others)
		for _, heal := range heals {
			heal()
		}
		s.change(s.sites) // while they come back
		s.awaitVoters()
	}
	s.change(s.sites)
	s.settle("in the end", s.sites)
	s.agree()
}

// scenario is the cluster and what its directories are to be.
type scenario struct {
	t      *testing.T
	rng    *rand.Rand
	began  time.Time
	wire   *wire
	sites  []*runSite // three voters, then the observers
	source string     // the directory that all are to have
	made   int        // files so far, for new names
}

// fault is what can happen to a site; begin returns what ends it.
type fault struct {
	name  string
	begin func(*scenario, *runSite) (end func())
}

var faults = []fault{
	{"kill -9 of all its processes", func(_ *scenario, x *runSite) func() {
		x.stop("agent", syscall.SIGKILL)
		x.stop("pull", syscall.SIGKILL)
		return x.start
	}},
	{"kill -9 of the agent alone", func(_ *scenario, x *runSite) func() {
		x.stop("agent", syscall.SIGKILL)
		return x.start
	}},
	{"cut off", func(s *scenario, x *runSite) func() {
		cut := &s.wire.cut[slices.Index(s.sites, x)]
		cut.Store(true)
		return func() { cut.Store(false) }
	}},
	{"frozen", func(_ *scenario, x *runSite) func() {
		x.freeze(true)
		return func() { x.freeze(false) }
	}},
}

func newScenario(t *testing.T) *scenario {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("GUS_SCENARIO_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	s := &scenario{t: t, rng: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), wire: newWire(t, 8)}
	s.note("GUS_SCENARIO_SEED=%d", seed)
	dir := t.TempDir()
	s.source = filepath.Join(dir, "source")
	for i := range 8 {
		name := fmt.Sprintf("voter-%d", i+1)
		if i >= 3 {
			name = fmt.Sprintf("observer-%d", i-2)
		}
		x := &runSite{
			t: t, name: name, home: filepath.Join(dir, strconv.Itoa(i)), own: i%2 == 1, running: map[string]*running{},
			listen: s.wire.private[i].String(), public: s.wire.public[i].LocalAddr().String(),
		}
		x.client = client.New(x.path("sock"))
		if err := os.Mkdir(x.home, 0o700); err != nil {
			t.Fatal(err)
		}
		s.sites = append(s.sites, x)
	}
	t.Cleanup(func() {
		for _, x := range s.sites {
			x.close()
		}
	})
	s.found()
	return s
}

// found makes the cluster as the README does, half of the sites with a configuration file.
func (s *scenario) found() {
	table := fmt.Sprintf("[[sync]]\nprefix = %q\ndir = \"files\"\ndelete = true\nexec = %q\n", scenarioPrefix, scenarioExec)
	token := ""
	for i, x := range s.sites {
		if x.own {
			if err := os.WriteFile(x.path("gus.toml"), []byte(table), 0o600); err != nil {
				s.t.Fatal(err)
			}
		}
		switch {
		case i == 0:
			x.must("init", "--name", x.name, "--voters", "voter-1,voter-2,voter-3")
		case i < 3:
			x.must("join", token, "--name", x.name, "--listen", x.listen)
		default:
			x.must("join", token, "--name", x.name, "--listen", x.listen, "--observer")
		}
		x.start()
		if i == 0 {
			token = strings.TrimSpace(x.must("token"))
		}
	}
	s.awaitVoters()
}

// awaitVoters waits until all voters vote.
func (s *scenario) awaitVoters() {
	s.t.Helper()
	for _, x := range s.sites[:3] {
		eventuallyOK(s.t, x.name+" votes", func() error {
			st, err := x.client.Status(s.t.Context())
			if err == nil && (st.Quorum.Reached != 3 || !st.Voting.OK) {
				err = fmt.Errorf("it reaches %d voters, and votes: %v", st.Quorum.Reached, st.Voting.OK)
			}
			return err
		})
	}
}

// note logs what happens.
func (s *scenario) note(format string, args ...any) {
	s.t.Logf("%5.1fs %s", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// oddNames are those of files that are legal, and are mistaken for something else where
// somebody is careless.
var oddNames = []string{
	"a b", " leading and trailing ", "-rf", "--help", "$(false)", "`false`", "it's", `"quoted"`, `back\slash`, "semi;colon",
	"star*", "what?", "50%", "%2F", "#hash", "a&b=c", "{{ site }}", "naïve café", "日本語", "👋", "e\u0301 decomposed", ".hidden",
	"...", "trailing.", "deep/er/and/deeper/still", "d i r/.x", "key.tmpl", "_gus/no", strings.Repeat("n", 255), "@file", "null\u00a0space",
}

// makeSource makes the directory that is pushed first.
func (s *scenario) makeSource() {
	for _, name := range oddNames {
		s.write(name, "odd: "+name)
	}
	s.write("empty", "")
	s.write("large", s.bytes(200<<10))
	for s.made < scenarioFiles {
		s.create()
	}
}

// create makes one more file, in a subdirectory or not, of text or not.
func (s *scenario) create() {
	name := fmt.Sprintf("file-%d", s.made)
	if s.made%3 == 0 {
		name = fmt.Sprintf("dir-%d/sub/%s", s.made%7, name)
	}
	content := fmt.Sprintf("text of %s\n\n", name)
	if s.made%4 == 0 {
		content = s.bytes(s.rng.IntN(3000))
	}
	s.write(name, content)
}

func (s *scenario) bytes(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.rng.Uint32())
	}
	return string(b)
}

func (s *scenario) write(name, content string) {
	s.t.Helper()
	path := filepath.Join(s.source, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		s.t.Fatal(err)
	}
	s.made++
}

// change changes the source, and the keys at sites among those given: some keys by
// themselves, and all that is left by a push.
func (s *scenario) change(at []*runSite) {
	s.t.Helper()
	any := func() *runSite { return at[s.rng.IntN(len(at))] }
	var names []string
	if err := walkFiles(s.source, func(name string) error { names = append(names, name); return nil }); err != nil {
		s.t.Fatal(err)
	}
	s.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names[:3] {
		s.write(name, s.bytes(100))
		s.persist(any(), "set", scenarioPrefix+name, "@"+filepath.Join(s.source, name))
	}
	if err := os.Remove(filepath.Join(s.source, names[3])); err != nil {
		s.t.Fatal(err)
	}
	s.persist(any(), "delete", scenarioPrefix+names[3])
	for _, name := range names[4:10] {
		s.write(name, s.bytes(1000))
	}
	if err := os.Remove(filepath.Join(s.source, names[10])); err != nil {
		s.t.Fatal(err)
	}
	s.create()
	s.push(any())
}

func (s *scenario) push(at *runSite) {
	s.t.Helper()
	s.persist(at, "sync", "push", s.source, scenarioPrefix, "--delete", "--yes")
}

// persist runs gus until it succeeds: while sites are away something may fail, or may
// have been done without anybody knowing, and may always be done again.
func (s *scenario) persist(at *runSite, args ...string) {
	s.t.Helper()
	s.note("%s: gus %.60s", at.name, strings.Join(args[:2], " "))
	eventuallyOK(s.t, at.name, func() error {
		_, err := at.gus(args...)
		if err != nil {
			s.note("%s again: %s", at.name, lastOf(err.Error()))
		}
		return err
	})
}

// lastOf returns the end of a long line.
func lastOf(s string) string { return s[strings.LastIndex(s, "gus: ")+len("gus: "):] }

// settle waits until sites have the files of the source, and have said so last.
func (s *scenario) settle(when string, at []*runSite) {
	s.t.Helper()
	want, err := digest(s.source)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, x := range at {
		eventuallyOK(s.t, when+" the files of "+x.name, func() error {
			got, err := digest(x.files())
			if err == nil && got != want {
				err = errors.New(s.difference(x))
			}
			return err
		})
		eventuallyOK(s.t, when+" the last run of the command of "+x.name, func() error {
			sums, err := os.ReadFile(x.path("sums"))
			lines := bytes.Fields(sums)
			if err == nil && (len(lines) == 0 || string(lines[len(lines)-1]) != want) {
				err = fmt.Errorf("%d runs, the last one with another sum", len(lines))
			}
			return err
		})
	}
	s.note("%s: %d sites have it all", when, len(at))
}

// difference names files of x that are not as the source's.
func (s *scenario) difference(x *runSite) string {
	var odd []string
	compare := func(from, to string) func(string) error {
		return func(name string) error {
			a, err := os.ReadFile(filepath.Join(from, name))
			b, err2 := os.ReadFile(filepath.Join(to, name))
			if (err != nil || err2 != nil || !bytes.Equal(a, b)) && !slices.Contains(odd, name) {
				odd = append(odd, name)
			}
			return nil
		}
	}
	err := errors.Join(walkFiles(s.source, compare(s.source, x.files())), walkFiles(x.files(), compare(x.files(), s.source)))
	return fmt.Sprintf("%d files differ: %.300q %v", len(odd), odd, err)
}

// agree waits until each site says that all have the same version.
func (s *scenario) agree() {
	s.t.Helper()
	for _, x := range s.sites {
		eventuallyOK(s.t, "gus sync status at "+x.name, func() error {
			out, err := x.gus("sync", "status", scenarioPrefix, "--json")
			if err != nil {
				return err
			}
			return allTheSame(out, len(s.sites))
		})
	}
	s.note("all say so: %s", s.sites[7].must("sync", "status", scenarioPrefix))
}

// allTheSame says what differs where gus sync status does not show the same at all sites.
func allTheSame(out string, all int) error {
	var first siteSync
	sites := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var j siteSync
		if err := d.Decode(&j); err != nil {
			return err
		}
		if len(sites) == 0 {
			first = j
		}
		sites[j.Site] = true
		if j.Version == "" || j.Version != first.Version || j.Keys != first.Keys || j.Pending > 0 || j.Error != "" || j.Stopped {
			return fmt.Errorf("sites differ, or one is not done:\n%s", out)
		}
	}
	if len(sites) != all {
		return fmt.Errorf("%d of %d sites tell of their files:\n%s", len(sites), all, out)
	}
	return nil
}
