package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gus/agent/client"
	"gus/membership"
	"gus/register"
	"gus/snapshot"
)

// Restored says what a new cluster was made with.
type Restored struct {
	Cluster string `json:"cluster"`
	Site    string `json:"site"`
	Data    string `json:"data"`
	Keys    int64  `json:"keys"`
	Deleted int64  `json:"deleted"`       // deletions that are remembered
	CAKey   string `json:"ca_key"`        // the file that lets sites join; to be backed up
	Old     string `json:"old,omitempty"` // where the identity and the database are that were there before
}

// aside is the directory, in a data directory, in which a new identity and its database are
// made. What is in it counts for nobody until it was moved up, the identity last: without one there is no
// site.
const (
	aside = "site.new"
	// oldMark, in it, says that another site of the directory was moved away for it, and where to.
	oldMark = "old"
)

// Restore makes, in the directory data, which is absent or empty, the site called name, the only
// voter of a new cluster, with what the backup in file has. All of the backup is checked before
// anything is made. It does all of that or nothing: killed at any time it leaves a
// directory without an identity, in which it can be done again. progress, if it is not nil, is told of
// the steps "verified" and "restored" how many keys are done.
func Restore(file, data, name string, progress func(step string, keys int)) (Restored, error) {
	return (&restoring{file: file, data: data, name: name, saving: Saving{Progress: progress}}).run()
}

// restoring is a Restore.
type restoring struct {
	file, data, name string
	saving           Saving
	stepped          func(step string) // of tests: told before each step that a kill may come before; or nil
}

func (r *restoring) run() (out Restored, err error) {
	sum, err := snapshot.VerifyBackup(r.file, r.saving.step("verified"))
	if err != nil {
		return Restored{}, fmt.Errorf("%w: nothing was changed", err)
	}
	if err := checkVacant(r.data); err != nil {
		return Restored{}, err
	}
	unlock, err := snapshot.Lock(r.data)
	if err != nil {
		return Restored{}, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := clearAside(r.data); err != nil {
		return Restored{}, err
	}
	b := building{data: r.data, name: r.name, stepped: r.stepped}
	err = b.build(sum.Owner, func(each func(snapshot.Entry) bool) error { return r.read(sum, each) })
	if err == nil {
		err = b.moveUp()
	}
	if err != nil {
		return Restored{}, err
	}
	return Restored{
		Cluster: b.conf.Cluster.String(), Site: r.name, Data: r.data, Keys: sum.Keys, Deleted: sum.Deleted,
		CAKey: filepath.Join(r.data, membership.IdentityDir, "ca.key"),
	}, nil
}

// read calls each with what the backup has, which must be what was verified.
func (r *restoring) read(sum snapshot.Summary, each func(snapshot.Entry) bool) error {
	f, err := os.Open(r.file)
	if err != nil {
		return fmt.Errorf("open a backup: %w", err)
	}
	defer f.Close()
	b, err := snapshot.ReadBackup(f)
	if err != nil {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	n, progress := 0, r.saving.step("restored")
	for e, err := range b.Entries() {
		if err != nil {
			return fmt.Errorf("%s: %w", r.file, err)
		}
		if !each(e) {
			return nil
		}
		if n++; progress != nil {
			progress(n)
		}
	}
	if again, whole := b.Summary(); !whole || again != sum {
		return fmt.Errorf("%s has changed since it was verified: nothing was changed", r.file)
	}
	return nil
}

// checkVacant refuses a data directory in which there is something.
func checkVacant(data string) error {
	entries, err := os.ReadDir(data)
	if err != nil {
		return ignoreAbsent(err)
	}
	ours := map[string]bool{aside: true, "lock": true, "lost+found": true}
	if cutOffRestore(data) {
		ours[databaseFile] = true
	}
	var there []string
	for _, e := range entries {
		if !ours[e.Name()] {
			there = append(there, e.Name())
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("%w: %s is not empty, it has %s: name another directory; to write into a cluster that runs, use --into", client.ErrRefused, data, strings.Join(there, ", "))
	}
	return nil
}

// cutOffRestore says whether the database in data was put there by a Restore that was cut
// off before the identity was.
func cutOffRestore(data string) bool {
	return !exists(filepath.Join(data, membership.IdentityDir)) && exists(filepath.Join(data, aside, membership.IdentityDir)) &&
		!exists(filepath.Join(data, aside, databaseFile)) && !exists(filepath.Join(data, aside, oldMark))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// clearAside removes what a Restore or a recovery that was cut off has left, which counts for nobody.
func clearAside(data string) error {
	if cutOffRestore(data) {
		if err := os.Remove(filepath.Join(data, databaseFile)); ignoreAbsent(err) != nil {
			return fmt.Errorf("remove what an earlier attempt left: %w", err)
		}
	}
	if err := os.RemoveAll(filepath.Join(data, aside)); err != nil {
		return fmt.Errorf("remove what an earlier attempt left: %w", err)
	}
	return nil
}

// building makes a new identity and a database aside, and moves them up.
type building struct {
	data, name string
	conf       membership.Configuration
	stepped    func(step string)
}

func (b *building) step(name string) {
	if b.stepped != nil {
		b.stepped(name)
	}
}

// build makes both aside. The new voter's number is above owner, the highest of those that have
// written: versions stay what they are, and none of them counts as this voter's own.
func (b *building) build(owner register.Voter, read func(each func(snapshot.Entry) bool) error) (err error) {
	if owner >= register.MaxVoter {
		return fmt.Errorf("%d voters have written these keys, and there is no number for another one: found a cluster with `gus init` and use `gus snapshot restore --into ''` there", owner)
	}
	dir := filepath.Join(b.data, aside)
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	b.step("begin")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	identity := filepath.Join(dir, membership.IdentityDir)
	if b.conf, err = membership.FoundAlone(identity, b.name, owner+1); err != nil {
		return err
	}
	b.step("identity made")
	err = snapshot.Build(dir, b.conf.Cluster.String(), func(yield func(snapshot.Entry, error) bool) {
		if err := read(func(e snapshot.Entry) bool { return yield(e, nil) }); err != nil {
			yield(snapshot.Entry{}, err)
		}
	})
	if err != nil {
		return err
	}
	b.step("database made")
	return markDatabase(identity)
}

// moveUp makes what was made aside the site of the data directory, the identity last.
func (b *building) moveUp() error {
	dir := filepath.Join(b.data, aside)
	for _, name := range []string{databaseFile, membership.IdentityDir} {
		b.step("move " + name)
		from, to := filepath.Join(dir, name), filepath.Join(b.data, name)
		if !exists(from) && exists(to) {
			continue // an earlier attempt has
		}
		if err := os.Rename(from, to); err != nil {
			return fmt.Errorf("put %s in place: %w", to, err)
		}
		if err := errors.Join(membership.SyncDir(dir), membership.SyncDir(b.data)); err != nil {
			return err
		}
	}
	b.step("clean")
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}
