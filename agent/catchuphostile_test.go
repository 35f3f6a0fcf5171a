package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gus/quic"
	"gus/register"
)

// impostor is a voter that follows no protocol: it has a site's identity and
// answers streams as the test says.
type impostor struct {
	*quic.Endpoint
	stop func()
}

// replace kills s and has an impostor take its place.
func (s *testSite) replace(handlers map[quic.Purpose]quic.Handler) *impostor {
	s.w.t.Helper()
	boot := s.store.Boot()
	s.kill()
	s.w.cutOff(s, false)
	id, conf, err := identify(s.data())
	if err != nil {
		s.w.t.Fatal(err)
	}
	e, err := quic.New(quic.Config{
		Identity: id, Conn: s.w.plug(s), Configuration: conf.Number, Boot: boot + 1, Handlers: handlers,
		Log:     slog.New(slog.NewTextHandler(s.w.t.Output(), nil)).With("at", "impostor"),
		Deliver: func(context.Context, register.Voter, quic.Batch) {},
	})
	if err != nil {
		s.w.t.Fatal(err)
	}
	for i, other := range s.w.sites {
		if err := e.SetPeer(other.name, register.Voter(i+1), other.addr.String()); other != s && err != nil {
			s.w.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(s.w.t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	return &impostor{Endpoint: e, stop: func() {
		cancel()
		if err := <-done; err != nil {
			s.w.t.Error(err)
		}
		if err := e.Close(); err != nil {
			s.w.t.Error(err)
		}
		if err := s.net.Close(); err != nil {
			s.w.t.Error(err)
		}
	}}
}

// frame is v as one frame, or the bytes that it is.
func frame(t *testing.T, v any) []byte {
	t.Helper()
	if b, ok := v.([]byte); ok {
		return b
	}
	var b, out bytes.Buffer
	if err := streamEncoding.MarshalToBuffer(v, &b); err != nil {
		t.Fatal(err)
	}
	if err := quic.WriteFrame(&out, b.Bytes()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// lengthOnly promises a frame that does not come.
func lengthOnly(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func shownKeys(n int) (shown []register.Shown) {
	for i := range n {
		shown = append(shown, register.Shown{Key: strings.Repeat("k", i%7+1), Tag: register.Tag{TS: 5, Owner: 1}, Decided: true})
	}
	return shown
}

var good = register.Shown{Key: "k", Tag: register.Tag{TS: 1 << 40, Owner: 1}, Sum: 1, Decided: true, Held: true}

// What a site that catches up is told is checked before anything is done about it.
func TestNonsenseForWhoCatchesUp(t *testing.T) {
	end := &pullAnswer{Page: &pullPage{Database: 7, End: true}}
	page := func(change func(p *pullPage)) *pullAnswer {
		p := &pullPage{Database: 7, Upto: 3, Last: 3, End: true}
		change(p)
		return &pullAnswer{Page: p}
	}
	wanted := page(func(p *pullPage) { p.Keys, p.End = []register.Shown{good}, false })
	write := func(key string, tag register.Tag, size int, held bool) *pullAnswer {
		m := register.MsgCatchup{Key: key, Held: held}
		m.Write.Tag, m.Write.Value = tag, make([]byte, size)
		return &pullAnswer{Writes: []register.MsgCatchup{m}}
	}
	pulls := [][]any{ // what is answered to one question after the other
		{[]byte{}},
		{[]byte("\xff\xff\xff\xffx")},
		{lengthOnly(100)},
		{lengthOnly(maxAnswer + 1)},
		{append(lengthOnly(3), "xyz"...)},
		{&pullAnswer{}},
		{write("unasked", good.Tag, 1, true)},
		{page(func(p *pullPage) { p.Database = 0 })},
		{page(func(p *pullPage) { p.Upto = 4 })},
		{page(func(p *pullPage) { p.Keys = shownKeys(maxShown + 1) })},
		{page(func(p *pullPage) { p.Keys = []register.Shown{{Key: "a\nb", Tag: good.Tag, Decided: true}} })},
		{page(func(p *pullPage) { p.Keys = []register.Shown{{Tag: good.Tag, Decided: true}} })},
		{page(func(p *pullPage) { p.Keys = []register.Shown{{Key: strings.Repeat("x", register.MaxKey+1)}} })},
		{page(func(p *pullPage) { p.End = false }), page(func(p *pullPage) { p.Upto = 2 })},
		{page(func(p *pullPage) { p.End = false }), page(func(p *pullPage) { p.Database = 8 })},
		{wanted, write("other", good.Tag, 1, true)},
		{wanted, write("k", good.Tag, 1, false)},
		{wanted, write("k", register.Tag{TS: 1 << 63, Owner: 1}, 1, true)},
		{wanted, write("k", register.Tag{TS: 5, Owner: 200}, 1, true)},
		{wanted, write("k", good.Tag, register.MaxValue+1, true)},
	}
	sums := make([]uint64, register.Partitions)
	sums[register.Partition("k")] = 1
	told := &agreeAnswer{Sums: sums}
	buckets := make([]uint64, register.Buckets)
	buckets[register.Bucket("k")] = 1
	agrees := [][]any{
		{[]byte{}},
		{&agreeAnswer{}},
		{&agreeAnswer{Sums: sums[1:]}},
		{&agreeAnswer{Sums: make([]uint64, maxShown+1)}},
		{told, told},
		{told, &agreeAnswer{Sums: buckets, More: true}},
		{told, &agreeAnswer{Sums: buckets}, &agreeAnswer{Shown: shownKeys(3)}},
		{told, &agreeAnswer{Sums: buckets}, &agreeAnswer{Shown: []register.Shown{good, good}}},
		{told, &agreeAnswer{Sums: buckets}, &agreeAnswer{More: true}},
		{told, &agreeAnswer{Sums: buckets}, &agreeAnswer{Shown: []register.Shown{good}, More: true}},
		{told, &agreeAnswer{Sums: buckets}, &agreeAnswer{Shown: []register.Shown{{Key: "a\x00"}}}},
	}
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		var mu sync.Mutex
		pulled, agreed := 0, 0
		answer := func(cases [][]any, n *int, other *pullAnswer) quic.Handler {
			return func(_ context.Context, from quic.Site, s *quic.Stream) {
				mu.Lock()
				answers := []any{other}
				if from.Name == "ir" && *n < len(cases) {
					answers = cases[*n]
					*n++
				}
				mu.Unlock()
				for _, a := range answers {
					if _, err := quic.ReadFrame(s, maxAsk); err != nil {
						return
					}
					if _, err := s.Write(frame(t, a)); err != nil {
						return
					}
				}
				_ = s.CloseWrite()
				_, _ = io.Copy(io.Discard, s)
			}
		}
		fake := ca.replace(map[quic.Purpose]quic.Handler{
			purposeCatchup:   answer(pulls, &pulled, end),
			purposeAgreement: answer(agrees, &agreed, end),
		})
		defer fake.stop()
		time.Sleep(30 * time.Minute) // what fails is tried again after a while
		mu.Lock()
		if pulled != len(pulls) || agreed != len(agrees) {
			t.Errorf("%d of %d answers to who catches up, %d of %d to who compares", pulled, len(pulls), agreed, len(agrees))
		}
		mu.Unlock()
		if s := ir.status(); s.Keys != 0 || s.Disagreements.Count != 0 {
			t.Errorf("%d keys, disagreements %+v", s.Keys, s.Disagreements)
		}
		w.want(ir.set("fine", "yes"), "")
		w.want(va.get("fine"), "yes")
	})
}

// Who asks nonsense, too much at once, or nothing, is not served on.
func TestNonsenseFromWhoCatchesUp(t *testing.T) {
	first := &pullAsk{Version: streamVersion}
	sums := &agreeAsk{Kind: askSums, Version: streamVersion}
	cases := map[quic.Purpose][][]any{
		purposeCatchup: {
			{},
			{[]byte{}},
			{lengthOnly(maxAsk + 1)},
			{lengthOnly(maxAsk)},
			{append(lengthOnly(3), "xyz"...)},
			{&pullAsk{}},
			{&pullAsk{Version: 2}},
			{first, &pullAsk{Wanted: []uint16{1}}},
			{first, &pullAsk{Wanted: []uint16{0, 0}}},
			{first, &pullAsk{Wanted: make([]uint16, maxShown+1)}},
		},
		purposeAgreement: {
			{},
			{&agreeAsk{}},
			{&agreeAsk{Kind: askSums}},
			{&agreeAsk{Kind: 99}},
			{sums, &agreeAsk{Kind: askBuckets, Part: register.Partitions}},
			{sums, &agreeAsk{Kind: askBuckets, Part: -1}},
			{sums, &agreeAsk{Kind: askBucket, Buckets: []uint16{register.Buckets}}},
			{sums, &agreeAsk{Kind: askBucket, Buckets: []uint16{1, 1}}},
			{sums, &agreeAsk{Kind: askKeys, Keys: []string{""}}},
			{sums, &agreeAsk{Kind: askKeys, Keys: slices.Repeat([]string{"k"}, maxShown+1)}},
		},
	}
	inWorld(t, three, func(w *world) {
		ca, va, ir := w.sites[0], w.sites[1], w.sites[2]
		w.want(ir.set("k", "v"), "")
		time.Sleep(2 * epochLength)
		fake := ca.replace(nil)
		defer fake.stop()
		open := func(p quic.Purpose) *quic.Stream {
			s, err := fake.OpenStream(w.t.Context(), "ir", p)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		for purpose, all := range cases {
			for i, asks := range all {
				s := open(purpose)
				for _, a := range asks {
					if _, err := s.Write(frame(t, a)); err != nil {
						t.Fatal(err)
					}
				}
				_, _ = io.Copy(io.Discard, s) // until it is ended at the other side
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				ir.catchup.mu.Lock()
				if n := len(ir.catchup.serving[serving{"ca", purpose}]); n != 0 {
					t.Errorf("purpose %d, case %d: it is served on", purpose, i)
				}
				ir.catchup.mu.Unlock()
			}
		}
		for purpose, limit := range map[quic.Purpose]int{purposeCatchup: 1, purposeAgreement: maxAgreeing} {
			for range 3 * limit {
				defer open(purpose).Close()
			}
			time.Sleep(time.Second)
			ir.catchup.mu.Lock()
			if n := len(ir.catchup.serving[serving{"ca", purpose}]); n != limit {
				t.Errorf("purpose %d: %d streams are served, want %d", purpose, n, limit)
			}
			ir.catchup.mu.Unlock()
		}
		w.want(va.get("k"), "v")
	})
}

// FuzzStreams decodes what may come over streams of both purposes.
func FuzzStreams(f *testing.F) {
	f.Add([]byte{0xa1, 1, 0x81, 0xa0})
	f.Add([]byte{0xa1, 2, 0xa3, 1, 7, 2, 0x81, 0xa1, 1, 0x61, 'k', 3, 3})
	f.Add([]byte{0xa2, 1, 3, 5, 0x82, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > maxAsk {
			return
		}
		var answer pullAnswer
		if err := streamDecoding.Unmarshal(b, &answer); err == nil && answer.Page != nil {
			if len(answer.Page.Keys) > maxShown || len(answer.Writes) > maxShown {
				t.Fatal("more than a page")
			}
			_ = checkShown(answer.Page.Keys)
		}
		var ask agreeAsk
		if err := streamDecoding.Unmarshal(b, &ask); err == nil && ask.check() == nil && len(ask.Keys) > maxShown {
			t.Fatal("more than a page")
		}
		var a agreeAnswer
		_ = streamDecoding.Unmarshal(b, &a)
		var p pullAsk
		_ = streamDecoding.Unmarshal(b, &p)
	})
}
