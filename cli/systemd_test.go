package cli

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gus/agent/client"
)

// TestSystemdIsTold runs an agent as systemd would with Type=notify.
func TestSystemdIsTold(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	told := func() string {
		t.Helper()
		b := make([]byte, 100)
		l.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}

	var out, errs bytes.Buffer
	a := &app{out: &out, err: &errs}
	data := filepath.Join(dir, "data")
	if err := a.run(t.Context(), strings.Fields("init --name solo --data "+data)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.run(ctx, strings.Fields("agent --listen 127.0.0.1:0 --data "+data)) }()
	if s := told(); s != "READY=1" {
		t.Errorf("told %q", s)
	}
	c := client.New(filepath.Join(data, "gus.sock")) // whoever is told may ask at once
	defer c.Close()
	if _, err := c.Set(t.Context(), "k", nil); err != nil {
		t.Error(err)
	}
	cancel()
	if s := told(); s != "STOPPING=1" {
		t.Errorf("told %q", s)
	}
	if err := <-done; err != nil {
		t.Errorf("%v\n%s", err, errs.String())
	}
}

func TestTheLogInJSON(t *testing.T) {
	var b bytes.Buffer
	log := newLog(&b, "json", slog.LevelInfo)
	log.Info("connected", "addr", &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7487}, "after", time.Second, "n", 3)
	if s := b.String(); !strings.Contains(s, `"addr":"10.0.0.1:7487"`) || !strings.Contains(s, `"n":3`) {
		t.Error(s)
	}
}
