package quic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

const purposeEcho Purpose = 200

// echo answers each frame with itself.
func echo(_ context.Context, from Site, s *Stream) {
	if from != s.Peer() {
		panic("the stream is from another site than the handler was told")
	}
	for {
		p, err := ReadFrame(s, 1<<10)
		if err != nil {
			return
		}
		if err := WriteFrame(s, p); err != nil {
			return
		}
	}
}

func serving(p Purpose, h Handler) func(*site, *Config) {
	return func(_ *site, c *Config) { c.Handlers = map[Purpose]Handler{p: h} }
}

func ask(ctx context.Context, s *site, to, question string) (string, error) {
	st, err := s.OpenStream(ctx, to, purposeEcho)
	if err != nil {
		return "", err
	}
	defer st.Close()
	if err := st.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	if err := WriteFrame(st, []byte(question)); err != nil {
		return "", err
	}
	p, err := ReadFrame(st, 1<<10)
	return string(p), err
}

func TestStreamsComeAndGo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		b := w.start(w.ids[1], addr(2), 1, serving(purposeEcho, echo))
		a.knows(b)
		for i := range 1000 {
			if got, err := ask(t.Context(), a, "b", fmt.Sprint(i)); err != nil || got != fmt.Sprint(i) {
				t.Fatalf("question %d: %q, %v", i, got, err)
			}
		}
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				if got, err := ask(t.Context(), a, "b", fmt.Sprint(i)); err != nil || got != fmt.Sprint(i) {
					t.Errorf("question %d of many: %q, %v", i, got, err)
				}
			})
		}
		wg.Wait()
		if n := b.peerStatus("a").StreamsServed; n != 1300 {
			t.Errorf("%d streams were served", n)
		}
	}, "a", "b")
}

func TestOpeningAStreamWaitsForTheConnection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		b := w.start(w.ids[1], addr(2), 1, serving(purposeEcho, echo))
		if _, err := a.OpenStream(t.Context(), "b", purposeEcho); !errors.Is(err, ErrUnknownPeer) {
			t.Errorf("to nobody: %v", err)
		}
		if err := a.SetPeer("b", 2, ""); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := a.OpenStream(ctx, "b", purposeEcho); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a connection: %v", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if got, err := ask(t.Context(), a, "b", "late"); err != nil || got != "late" {
				t.Errorf("%q, %v", got, err)
			}
		})
		a.knows(b)
		wg.Wait()
	}, "a", "b")
}

func TestCloseEndsWhoWaitsForAConnection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		if err := a.SetPeer("b", 2, ""); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, err := a.OpenStream(context.Background(), "b", purposeEcho)
			done <- err
		}()
		a.stop()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("open: %v", err)
		}
	}, "a", "b")
}

func TestAPurposeNobodyServes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.start(w.ids[0], addr(1), 1), w.start(w.ids[1], addr(2), 1)
		a.knows(b)
		if got, err := ask(t.Context(), a, "b", "?"); err == nil {
			t.Errorf("answered %q", got)
		}
		w.until("it is counted", func() bool { return b.peerStatus("a").Refused == 1 })
		if !strings.Contains(b.log.String(), "purpose 200 is not known") {
			t.Errorf("not in the log:\n%s", b.log)
		}
		if _, err := a.OpenStream(t.Context(), "b", purposeHello); err == nil {
			t.Error("the hello's purpose can be used")
		}
	}, "a", "b")
}

func TestClosingAStreamEndsBothDirections(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		ends := make(chan error, 2)
		b := w.start(w.ids[1], addr(2), 1, serving(purposeEcho, func(_ context.Context, _ Site, s *Stream) {
			if _, err := ReadFrame(s, 10); err != nil {
				ends <- err
			}
			_, err := io.ReadAll(s) // to the end of what a has written
			ends <- err
			for err = nil; err == nil; _, err = s.Write(make([]byte, 1<<10)) {
			}
			ends <- err
		}))
		a.knows(b)
		st, err := a.OpenStream(t.Context(), "b", purposeEcho)
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteFrame(st, []byte("last words")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(st.Close(), st.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-ends; err != nil {
			t.Errorf("b did not read to the end: %v", err)
		}
		if err := <-ends; err == nil {
			t.Error("b went on writing to nobody")
		}
		if _, err := st.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after close: %v", err)
		}
		if _, err := st.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("read after close: %v", err)
		}
		// That a has stopped reading before b has closed is nothing to count.
		w.until("it is served", func() bool { return b.peerStatus("a").StreamsServed == 1 })
		if n := b.peerStatus("a").Refused; n != 0 {
			t.Errorf("%d streams were refused", n)
		}
	}, "a", "b")
}

func TestClosingUnblocksAWriter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		b := w.start(w.ids[1], addr(2), 1, serving(purposeEcho, func(ctx context.Context, _ Site, _ *Stream) {
			<-ctx.Done() // and read nothing
		}))
		a.knows(b)
		st, err := a.OpenStream(t.Context(), "b", purposeEcho)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, err := st.Write(make([]byte, 8<<20))
			done <- err
		}()
		time.Sleep(time.Second) // it is stuck by now
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-done; err == nil {
			t.Error("a write of more than the windows hold is done")
		}
	}, "a", "b")
}

func TestDeadlinesOfStreams(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.start(w.ids[0], addr(1), 1)
		b := w.start(w.ids[1], addr(2), 1, serving(purposeEcho, echo))
		a.knows(b)
		st, err := a.OpenStream(t.Context(), "b", purposeEcho)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if err := st.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFrame(st, 10); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read of nothing: %v", err)
		}
		if err := st.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := WriteFrame(st, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if p, err := ReadFrame(st, 10); err != nil || string(p) != "x" {
			t.Errorf("after the deadline was lifted: %q, %v", p, err)
		}
		if err := st.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFrame(st, 10); err != io.EOF {
			t.Errorf("after b's end: %v", err)
		}
	}, "a", "b")
}

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	for _, p := range []string{"", "a", strings.Repeat("b", 5000)} {
		b.Reset()
		if err := WriteFrame(&b, []byte(p)); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFrame(&b, 5000)
		if err != nil || string(got) != p || b.Len() != 0 {
			t.Errorf("%d bytes came back as %d, %d left: %v", len(p), len(got), b.Len(), err)
		}
	}
	for _, c := range []struct {
		name, in string
		want     error
	}{
		{"nothing", "", io.EOF},
		{"half a length", "\x00\x00", io.ErrUnexpectedEOF},
		{"too large", "\x00\x00\x00\x0bhello world", ErrFrameTooLarge},
		{"huge", "\xff\xff\xff\xff", ErrFrameTooLarge},
		{"cut off", "\x00\x00\x00\x05hell", io.ErrUnexpectedEOF},
	} {
		if _, err := ReadFrame(strings.NewReader(c.in), 10); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := WriteFrame(&b, make([]byte, MaxFrame+1)); !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("a frame beyond the limit: %v", err)
	}
}
