//go:build unix

package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gus/agent/client"
)

// TestHangup has an agent that runs read its file again.
func TestHangup(t *testing.T) {
	dir := t.TempDir()
	path, data := filepath.Join(dir, "gus.toml"), filepath.Join(dir, "data")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("data = \""+data+"\"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var errs lockedBuffer
	a := &app{out: io.Discard, err: &errs}
	if err := a.run(t.Context(), []string{"init", "--name", "solo", "--data", data}); err != nil {
		t.Fatal(err)
	}
	write("listen = \"127.0.0.1:0\"\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.run(ctx, []string{"agent", "--config", path}) }()
	logs := func(line string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !strings.Contains(errs.String(), line); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s is missing in\n%s", line, errs.String())
			}
		}
	}
	logs("level=INFO msg=started") // it listens for signals before it starts
	write("lisen = \"127.0.0.1:0\"\n")
	syscall.Kill(os.Getpid(), syscall.SIGHUP)
	logs("level=ERROR msg=\"the configuration is wrong and changes nothing\" err=\"" + path + ":2: unknown")
	write("listen = \"127.0.0.1:9\"\nlog-level = \"debug\"\n")
	syscall.Kill(os.Getpid(), syscall.SIGHUP)
	logs("level=WARN msg=\"some of the configuration is in force after a restart only\" names=[listen]")
	// Keys become files from now on.
	c := client.New(filepath.Join(data, "gus.sock"))
	defer c.Close()
	if _, err := c.Set(t.Context(), "app/port", []byte("8080")); err != nil {
		t.Fatal(err)
	}
	write("[[sync]]\nprefix = \"app/\"\ndir = \"" + filepath.Join(dir, "app") + "\"\n")
	syscall.Kill(os.Getpid(), syscall.SIGHUP)
	logs("syncs=1 syncs_changed=true")
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(dir, "app", "port"))
		if err == nil && string(b) == "8080" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v, %q\n%s", err, b, errs.String())
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
