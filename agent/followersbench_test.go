package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"gus/quic"
	"gus/register"
)

// followersVariable makes this test binary the far ends of BenchmarkFollowers: a process
// of their own, which gives way to the voters, as other machines would.
const followersVariable = "GUS_TEST_FOLLOWERS"

// farEnds is who follows whom.
type farEnds struct {
	Voter    quic.Site
	Addr     string
	Database uint64
	After    register.Seq
	Dirs     []string // of the followers
}

// beFollowers follows until standard input ends.
func beFollowers(what string) {
	var f farEnds
	if err := json.Unmarshal([]byte(what), &f); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, dir := range f.Dirs {
		wg.Go(func() { f.follow(ctx, dir) })
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	wg.Wait()
	os.Exit(0)
}

// follow has an endpoint of an observer follow the voter and throw away what it is told.
func (f *farEnds) follow(ctx context.Context, dir string) {
	id, conf, err := identify(dir)
	if err != nil {
		panic(err)
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	e, err := quic.New(quic.Config{Identity: id, Conn: conn, Configuration: conf.Number, Boot: 1, Log: slog.New(slog.DiscardHandler),
		Deliver: func(context.Context, register.Voter, quic.Batch) {}, Datagram: func(quic.Site, []byte) {}})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = e.Run(ctx) })
	if err := e.SetPeer(f.Voter.Name, f.Voter.Number, f.Addr); err != nil {
		panic(err)
	}
	for ctx.Err() == nil {
		s, err := e.OpenStream(ctx, f.Voter.Name, purposeFollow)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		release := bind(ctx, s)
		var ask bytes.Buffer
		_ = streamEncoding.MarshalToBuffer(&followAsk{Version: streamVersion, Database: f.Database, After: f.After}, &ask)
		_ = quic.WriteFrame(s, ask.Bytes())
		_, _ = io.Copy(io.Discard, s)
		release()
		_ = s.Close()
	}
}

// attach has these follow a voter, and returns what ends that.
func attach(b *testing.B, voter *benchSite, followers []*benchSite) (detach func()) {
	f := farEnds{Voter: quic.Site{Name: voter.id.Name, Number: voter.id.Number}, Addr: voter.addr,
		Database: voter.store.Database(), After: voter.store.Last()}
	for _, s := range followers {
		f.Dirs = append(f.Dirs, s.dir)
	}
	what, err := json.Marshal(f)
	if err != nil {
		b.Fatal(err)
	}
	args := []string{os.Args[0]}
	if nice, err := exec.LookPath("nice"); err == nil {
		args = slices.Concat([]string{nice, "-n", "19"}, args)
	}
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(os.Environ(), followersVariable+"="+string(what))
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	for begin := time.Now(); voter.catchup.followers() < len(followers); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			_ = stdin.Close()
			b.Fatalf("%d of %d follow", voter.catchup.followers(), len(followers))
		}
	}
	time.Sleep(time.Second)
	return func() {
		_ = stdin.Close()
		if err := c.Wait(); err != nil {
			b.Error(err)
		}
		for voter.catchup.followers() > 0 {
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Second)
	}
}

// BenchmarkFollowers measures what 100 followers of one voter do to the p99 of sets there, at
// 500 sets a second. Their far ends have a process of their own that gives way, on the same
// machine.
func BenchmarkFollowers(b *testing.B) {
	sites := benchCluster(b, observerNames(100)...)
	pairs(b, "100 followers", func() []time.Duration { return sites[0].sets500(10 * time.Second) }, func() func() {
		return attach(b, sites[0], sites[3:])
	})
	for _, s := range sites[:3] {
		s.stop()
	}
}
