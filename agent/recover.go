package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gus/agent/client"
	"gus/membership"
	"gus/quic"
	"gus/register"
	"gus/snapshot"
)

// askOld is for how long the voters of the old cluster are given to answer.
const askOld = 5 * time.Second

// Survey says what a stopped site holds and what may be lost if it goes on alone.
type Survey struct {
	Data      string      `json:"data"`
	Site      string      `json:"site"`
	Role      string      `json:"role"`
	Cluster   string      `json:"cluster"`
	Keys      int64       `json:"keys"`
	Deleted   int64       `json:"deleted"`
	Unsettled int64       `json:"unsettled"`        // of both: not known to be held by a quorum; they are kept
	Newest    time.Time   `json:"newest,omitzero"`  // the newest write that it holds, by its writer's clock; UTC
	Forgot    bool        `json:"forgot,omitempty"` // it has told others of more than it holds: it is a copy or a restored image
	Quorum    int         `json:"quorum"`           // of the old cluster's voters, to write and to read
	Voters    int         `json:"voters"`           // of the old cluster
	Answered  int         `json:"answered"`         // of them, this site not counted
	Others    []LostVoter `json:"others"`           // voters of the old cluster
}

// LostVoter is another voter of the old cluster.
type LostVoter struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"` // where it was last; empty: not known
	Answers bool   `json:"answers"`
	// Unseen is how many of its saves this site has heard of and not looked at. It may have
	// their writes all the same, from the voters that sent them.
	Unseen uint64 `json:"unseen"`
	Heard  bool   `json:"heard"` // this site has heard how far it had come
}

// Recovery is the making of a new cluster from a stopped site of one whose quorum is gone
// for good. Nobody can start an agent there while it is open.
type Recovery struct {
	Survey  Survey
	id      *quic.Identity
	conf    membership.Configuration
	dormant *snapshot.Dormant
	owner   register.Voter    // the highest number of a voter, of the configuration and among the versions
	stepped func(step string) // as of restoring
}

// OpenRecovery opens the stopped site in the directory data, reads all that it holds,
// and asks the other voters, for a few seconds, whether they are there. It changes nothing. The
// error is client.ErrRefused where a quorum of the old cluster answers. FinishRecovery comes before it. The
// caller closes it.
func OpenRecovery(ctx context.Context, data string) (*Recovery, error) {
	r := &Recovery{Survey: Survey{Data: data}}
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Recovery) open(ctx context.Context) (err error) {
	if r.id, r.conf, err = identify(r.Survey.Data); err != nil {
		return err
	}
	if r.dormant, err = snapshot.OpenDormant(r.Survey.Data); err != nil {
		return err
	}
	err = r.survey(ctx)
	if err == nil && r.Survey.quorumAnswers() {
		err = fmt.Errorf("%w: a quorum of the cluster is there, %s: start the agent here", client.ErrRefused, r.Survey.answering())
	}
	if err != nil {
		return errors.Join(err, r.Close())
	}
	return nil
}

// Close gives the directory free.
func (r *Recovery) Close() error { return r.dormant.Close() }

func (r *Recovery) survey(ctx context.Context) error {
	s := &r.Survey
	if r.dormant.Cluster() != r.id.Cluster.String() {
		return fmt.Errorf("the database in %s is of cluster %s, the identity of %s: put back the one that belongs to it", s.Data, r.dormant.Cluster(), r.id.Cluster)
	}
	s.Site, s.Role, s.Cluster = r.id.Name, string(r.id.Role), r.id.Cluster.String()
	s.Quorum, s.Voters = max(r.conf.ReadQuorum, r.conf.WriteQuorum), len(r.conf.Voters)
	var newest int64
	sum, err := r.dormant.Entries(func(e snapshot.Entry) error {
		newest = max(newest, e.Tag.Clock())
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	s.Keys, s.Deleted, s.Unsettled = sum.Keys, sum.Deleted, sum.Unsettled
	if newest > 0 {
		s.Newest = time.UnixMilli(newest).UTC()
	}
	r.owner = sum.Owner
	if err := r.others(); err != nil {
		return err
	}
	return r.askOthers(ctx)
}

// others lists the other voters, with what this site knows of how far they had come.
func (r *Recovery) others() error {
	peers, err := membership.SavedPeers(r.Survey.Data)
	if err != nil {
		return err
	}
	note, err := r.dormant.Note()
	if err != nil {
		return err
	}
	r.Survey.Forgot = note.Forgot != nil
	cursors := r.dormant.Cursors()
	for _, v := range r.conf.Voters {
		r.owner = max(r.owner, v.Number)
		if v.Number == r.id.Number {
			continue
		}
		o := LostVoter{Name: v.Name}
		for _, p := range peers {
			if p.Name == v.Name {
				o.Address = p.Address
			}
		}
		for _, h := range note.Heard {
			if h.Voter == v.Number {
				o.Heard = true
				if seen := cursors[v.Name].Seq; h.Saved > seen {
					o.Unseen = uint64(h.Saved - seen)
				}
			}
		}
		r.Survey.Others = append(r.Survey.Others, o)
	}
	return nil
}

// askOthers finds out which of them answer. They are asked as somebody unknown asks who wants
// to join: the answer proves who it is, and changes nothing there.
func (r *Recovery) askOthers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askOld)
	defer cancel()
	others := r.Survey.Others
	var wg sync.WaitGroup
	for i := range others {
		if others[i].Address != "" {
			wg.Go(func() { others[i].Answers = r.answers(ctx, others[i]) })
		}
	}
	wg.Wait()
	for _, o := range others {
		if o.Answers {
			r.Survey.Answered++
		}
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return fmt.Errorf("nothing was changed: %w", context.Canceled)
	}
	return nil
}

func (r *Recovery) answers(ctx context.Context, o LostVoter) bool {
	c, err := quic.DialJoin(ctx, quic.JoinDial{
		Addr: o.Address, Cluster: r.id.Cluster, Fingerprint: sha256.Sum256(r.id.CA.Raw),
	})
	if err != nil {
		return false // nobody there, or a site of another cluster: either way not that one
	}
	site := c.Site
	_ = c.Close() // it has answered
	return site.Name == o.Name
}

// quorumAnswers says whether the old cluster goes on once this site is started.
func (s *Survey) quorumAnswers() bool {
	n := s.Answered
	if s.Role == string(quic.RoleVoter) && !s.Forgot {
		n++
	}
	return n >= s.Quorum
}

// answering names those that answer.
func (s *Survey) answering() string {
	if s.Answered == 0 {
		return "this site alone"
	}
	var names []string
	for _, o := range s.Others {
		if o.Answers {
			names = append(names, o.Name+" at "+o.Address)
		}
	}
	return "this site with " + strings.Join(names, " and ")
}

// Run makes the new cluster: with a new authority, this site as its only voter, and all
// that it holds, each key with the newest write that it has. The old identity and database
// are kept aside, in Restored.Old. Until the first of them is moved nothing has changed; a Run that is cut off later
// is finished by FinishRecovery. progress is as of Restore, of the step "recovered".
func (r *Recovery) Run(progress func(step string, keys int)) (Restored, error) {
	s := &r.Survey
	if err := clearAside(s.Data); err != nil {
		return Restored{}, err
	}
	b := building{data: s.Data, name: s.Site, stepped: r.stepped}
	tell := Saving{Progress: progress}.step("recovered")
	var sum snapshot.Summary
	err := b.build(r.owner, func(each func(snapshot.Entry) bool) (err error) {
		n := 0
		sum, err = r.dormant.Entries(func(e snapshot.Entry) error {
			if !each(e) {
				return errStopped
			}
			if n++; tell != nil {
				tell(n)
			}
			return nil
		})
		if errors.Is(err, errStopped) {
			err = nil
		}
		return err
	})
	if err != nil {
		return Restored{}, fmt.Errorf("nothing was changed: %w", err)
	}
	old, err := b.replaceOld("old-" + s.Cluster[:8])
	if err != nil {
		return Restored{}, err
	}
	return Restored{
		Cluster: b.conf.Cluster.String(), Site: s.Site, Data: s.Data, Keys: sum.Keys, Deleted: sum.Deleted, Old: old,
		CAKey: filepath.Join(s.Data, membership.IdentityDir, "ca.key"),
	}, nil
}

var errStopped = errors.New("nobody reads on")

// oldFiles are what a site is made of, the identity first.
var oldFiles = []string{membership.IdentityDir, databaseFile, databaseFile + "-wal", databaseFile + "-shm", "peers.json"}

// replaceOld moves the old site away, into a directory of that name or of one like it that is free,
// and the new one up. It returns where the old one is.
func (b *building) replaceOld(name string) (string, error) {
	free := name
	for i := 2; exists(filepath.Join(b.data, free)); i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	mark := filepath.Join(b.data, aside, oldMark)
	b.step("note the old")
	if err := os.WriteFile(mark+".tmp", []byte(free), 0o600); err != nil {
		return "", fmt.Errorf("nothing was changed: %w", err)
	}
	f, err := os.Open(mark + ".tmp")
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(mark+".tmp", mark)
	}
	if err == nil {
		err = membership.SyncDir(filepath.Dir(mark))
	}
	if err != nil {
		return "", fmt.Errorf("nothing was changed: %w", err)
	}
	return b.swap(free)
}

// swap moves the old site away and the new one up, and may be called again after it was cut off.
func (b *building) swap(free string) (string, error) {
	old := filepath.Join(b.data, free)
	b.step("move the old")
	if err := os.Mkdir(old, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("move the old site away: %w", err)
	}
	for _, name := range oldFiles {
		from, to := filepath.Join(b.data, name), filepath.Join(old, name)
		// Once the identity is away, and the new database is up, what is there is the new one.
		if exists(to) || !exists(from) || name != membership.IdentityDir && !exists(filepath.Join(b.data, aside, databaseFile)) {
			continue
		}
		if err := os.Rename(from, to); err != nil {
			return "", fmt.Errorf("move the old site away: %w: run `gus recover` again", err)
		}
		if err := errors.Join(membership.SyncDir(old), membership.SyncDir(b.data)); err != nil {
			return "", err
		}
		b.step("moved " + name)
	}
	return old, b.moveUp()
}

// FinishRecovery brings a recovery that was cut off to its end, if there is one in the directory
// data that has begun to move the old site away. Otherwise it does nothing and returns nothing.
func FinishRecovery(data string) (done Restored, err error) {
	free, err := os.ReadFile(filepath.Join(data, aside, oldMark))
	if errors.Is(err, fs.ErrNotExist) || err == nil && filepath.Base(string(free)) != string(free) {
		return Restored{}, nil
	}
	if err != nil {
		return Restored{}, fmt.Errorf("look for a recovery that was cut off: %w", err)
	}
	unlock, err := snapshot.Lock(data)
	if err != nil {
		return Restored{}, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	b := building{data: data}
	old := filepath.Join(data, string(free))
	// The old identity is moved first and the new one last: an identity in the directory is the old
	// one until the old one is away.
	if exists(filepath.Join(data, membership.IdentityDir)) && !exists(filepath.Join(old, membership.IdentityDir)) {
		return Restored{}, nil // nothing was moved yet
	}
	if _, err := b.swap(string(free)); err != nil {
		return Restored{}, err
	}
	id, _, err := identify(data)
	if err != nil {
		return Restored{}, err
	}
	return Restored{
		Cluster: id.Cluster.String(), Site: id.Name, Data: data, Old: old,
		CAKey: filepath.Join(data, membership.IdentityDir, "ca.key"),
	}, nil
}
