package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"gus/membership"
	"gus/quic"
	"gus/register"
	"gus/snapshot"
)

// Run runs an agent until ctx ends, and then returns nil. It returns another
// error where the agent cannot start, or cannot go on: its socket failed, a
// save ended so that nobody knows what the disk holds, or the data directory is
// older than what others have heard (ErrForgotten). In either case all that
// it started has ended and all that it opened is closed.
func Run(ctx context.Context, cfg Config) error {
	n, err := open(cfg)
	if err != nil {
		if cfg.Conn != nil {
			cfg.Conn.Close()
		}
		return err
	}
	l, err := listen(n.cfg.Socket)
	if err != nil {
		return errors.Join(err, n.close())
	}
	n.log.Info("started", "site", n.id.Name, "cluster", n.id.Cluster, "boot", n.store.Boot(),
		"data", n.cfg.Data, "socket", n.cfg.Socket, "listen", n.conn.LocalAddr())
	err = n.run(ctx, func(ctx context.Context) error { return n.api.serve(ctx, l, n.log) })
	n.log.Info("stopped")
	return err
}

// node is an agent with all its parts.
type node struct {
	cfg       Config
	log       *slog.Logger
	id        *quic.Identity
	conf      membership.Configuration
	started   time.Time
	conn      net.PacketConn
	store     *snapshot.Store
	endpoint  *quic.Endpoint
	gossip    *membership.Gossip
	admission *membership.Admission
	clocks    *clocks
	catchup   *catchup
	observer  *observer // nil at a voter
	syncs     *syncs
	published *syncStatus
	loop      *loop
	backups   chan struct{} // holds one for each backup that is sent
	schedule  *backupSchedule
	api       *api
}

// open puts a node together. Nothing runs yet but the store's writer.
func open(cfg Config) (*node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	n := &node{cfg: cfg, log: cfg.Logger, started: time.Now(), clocks: newClocks(cfg.Logger), backups: make(chan struct{}, maxBackups)}
	var err error
	if n.id, n.conf, err = identify(cfg.Data); err != nil {
		return nil, err
	}
	if err := checkDatabase(cfg.Data); err != nil {
		return nil, err
	}
	if err := n.bind(); err != nil { // before the store: what cannot start is no boot
		return nil, err
	}
	n.loop = newLoop(newDesk(), n.log)
	n.store, err = snapshot.Open(cfg.Data, snapshot.Options{
		Cluster: n.id.Cluster.String(),
		Done:    n.saved,
		Logger:  n.log,
		Retain:  n.retention(),
	})
	if err != nil {
		return nil, errors.Join(err, n.conn.Close())
	}
	for _, step := range []func() error{n.noteDatabase, n.recover, n.connect} {
		if err := step(); err != nil {
			return nil, errors.Join(err, n.store.Close(), n.conn.Close())
		}
	}
	n.loop.store, n.loop.transport = n.store, n.endpoint
	n.open()
	return n, nil
}

// open makes the local API, and what works through it.
func (n *node) open() {
	n.api = &api{
		desk: n.loop.desk, writer: n.writer, token: n.token, status: n.status, verify: n.verify,
		watch: (&watches{node: n}).serve, age: n.age, past: n.store, backup: n.serveBackup,
	}
	ask := n.loop.desk.ask
	if n.observer != nil {
		f := newForwarder(n.endpoint, n.conf, n.loop.desk.stopped, n.log)
		f.silent = n.observer.silent
		n.api.ask, ask = f.ask, f.ask
	}
	n.published = newSyncStatus(n.id.Name, n.log)
	n.published.set = setSystem(ask)
	n.published.load = loadSyncs(n.loop.desk, n.id.Name)
	n.api.sync = n.published.put
	n.syncs = newSyncs(n.cfg.Socket, n.published, n.log)
	n.syncs.reloads = n.cfg.Reloads
	n.syncs.set(n.cfg.Syncs)
	n.schedule = newBackupSchedule(n)
}

// age is how old what this site holds may be, at least: while it hears all, 0. A voter does
// once it has pulled what enough of the others hold.
func (n *node) age() time.Duration {
	switch {
	case n.observer != nil:
		return n.observer.age()
	case n.catchup.pulled()+1 < n.conf.ReadQuorum:
		return time.Since(n.started)
	}
	return n.loop.lostFor()
}

// writer names the site that wrote a version.
func (n *node) writer(v register.Voter) string { return voterName(n.conf, v) }

// recover makes the replica from what the store holds.
func (n *node) recover() error {
	conf := n.conf.Register(n.id.Number, n.store.Boot(), n.store.Last())
	conf.Ask = true // the directory may be a copy
	conf.Keys = int(n.store.Stats().Records)
	restore := easeGC()
	replica, err := register.New(conf, n.store.Records())
	restore()
	if err != nil {
		return fmt.Errorf("recover from %s: %w", n.cfg.Data, err)
	}
	if err := replica.Forgot(); err != nil {
		return forgottenBefore(n.cfg.Data, err)
	}
	n.loop.replica, n.loop.data = replica, n.cfg.Data
	n.loop.reach = newReach(n.id.Number, n.conf, n.started)
	n.loop.lost.Store(n.loop.reach.lostAt())
	return nil
}

// bind opens the socket that Config names.
func (n *node) bind() (err error) {
	if n.conn = n.cfg.Conn; n.conn != nil {
		return nil
	}
	n.conn, err = net.ListenPacket("udp", n.cfg.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen for other sites: %w: stop what is there, or name another address by --listen", err)
	case err != nil:
		return fmt.Errorf("listen for other sites: %w: name an address of this machine by --listen, as in :7487", err)
	}
	return nil
}

// connect makes the endpoint and what goes over it.
func (n *node) connect() (err error) {
	if err = n.belong(); err != nil {
		return err
	}
	n.catchup = newCatchup(n)
	n.endpoint, err = quic.New(n.endpointConfig())
	n.catchup.endpoint = n.endpoint
	if n.id.Role == quic.RoleObserver {
		n.observer = newObserver(n)
	}
	return err
}

// belong makes this site's part in its cluster's membership.
func (n *node) belong() (err error) {
	n.gossip, err = membership.NewGossip(membership.Config{
		Identity:      n.id,
		Configuration: n.conf,
		Boot:          n.store.Boot(),
		Data:          n.cfg.Data,
		Seeds:         n.cfg.Seeds,
		Advertise:     n.cfg.Advertise,
		Listen:        n.conn.LocalAddr(),
		Version:       n.cfg.Version,
		Log:           n.log,
	})
	if err != nil {
		return err
	}
	n.admission, err = membership.NewAdmission(membership.AdmissionConfig{
		Identity:      n.id,
		Configuration: n.conf,
		Dir:           filepath.Join(n.cfg.Data, membership.IdentityDir),
		Gossip:        n.gossip,
		Log:           n.log,
	})
	return err
}

func (n *node) endpointConfig() quic.Config {
	cfg := quic.Config{
		Identity:      n.id,
		Conn:          n.conn,
		Configuration: n.conf.Number,
		Boot:          n.store.Boot(),
		Log:           n.log,
		Deliver:       n.deliver,
		Peer:          n.linked,
		Datagram:      n.gossip.Datagram,
		Handlers: map[quic.Purpose]quic.Handler{
			membership.PurposeGossip:    n.gossip.Stream,
			membership.PurposeAdmission: n.admission.Stream,
			purposeClock:                n.clocks.tell,
			purposeCatchup:              n.catchup.serve,
			purposeAgreement:            n.catchup.serveAgreement,
			purposeFollow:               n.catchup.serveFollow,
		},
		Changed: n.gossip.Linked,
		Twin:    n.gossip.Twin,
		Join:    n.admission.Join,
		Lookup:  n.cfg.lookup,
	}
	if n.id.Role == quic.RoleVoter {
		cfg.Handlers[purposeForward] = newForwardServer(n.loop.desk, n.log).serve
	}
	return cfg
}

// saved is told by the store how a save ended.
func (n *node) saved(seq register.Seq, err error) {
	n.cfg.saving()
	n.catchup.disk.rise()
	n.loop.saved <- saving{seq, err} // one save at a time: there is room
}

// deliver passes a peer's batch to the loop. While the loop is behind it
// blocks, and with it the peer.
func (n *node) deliver(ctx context.Context, from register.Voter, b quic.Batch) {
	select {
	case n.loop.batches <- batch{from, b.Header, b.Messages}:
	case <-n.loop.desk.stopped:
	case <-ctx.Done():
	}
}

// linked is told of connections to voters.
func (n *node) linked(v register.Voter, up bool) {
	n.catchup.linked(v, up)
	select {
	case n.loop.links <- link{v, up}:
	case <-n.loop.desk.stopped:
	}
}

// run runs all parts and serve until ctx ends or one of them
// fails, then ends the others, and closes everything.
func (n *node) run(ctx context.Context, serve func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := []func(context.Context) error{
		n.loop.run, n.endpoint.Run,
		func(ctx context.Context) error { return n.gossip.Run(ctx, n.endpoint) },
		func(ctx context.Context) error { return n.admission.Run(ctx, n.endpoint) },
		func(ctx context.Context) error { return n.clocks.run(ctx, n.endpoint) },
		n.catchup.run,
		n.published.run,
		n.syncs.run,
		n.schedule.run,
		serve,
	}
	if n.observer != nil {
		parts = append(parts, n.observer.run)
	}
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() {
			defer cancel()
			errs[i] = part(ctx)
		})
	}
	n.cfg.Ready()
	wg.Wait()
	for range maxBackups { // those under way have lost their clients
		n.backups <- struct{}{}
	}
	return errors.Join(append(errs, n.close())...)
}

func (n *node) close() error { return errors.Join(n.endpoint.Close(), n.store.Close()) }
