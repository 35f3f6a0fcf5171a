package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gus/agent/client"
	"gus/register"
)

// door is a running agent of one site, with its socket.
type door struct {
	t      testing.TB
	socket string
	data   string
	client *client.Client
	stop   func() // once
}

func newDoor(t testing.TB) *door {
	data := filepath.Join(t.TempDir(), "solo")
	if err := Found([]Founder{{Name: "solo", Data: data}}); err != nil {
		t.Fatal(err)
	}
	d := &door{t: t, data: data, socket: filepath.Join(data, "gus.sock")}
	d.client = client.New(d.socket)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	ready := make(chan struct{})
	cfg := Config{
		Data:   data,
		Listen: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Ready:  func() { close(ready) },
	}
	go func() { done <- Run(ctx, cfg) }()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	d.stop = sync.OnceFunc(func() {
		d.client.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(d.socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left behind: %v", err)
		}
	})
	t.Cleanup(d.stop)
	return d
}

// raw sends a request as it is written, and returns the answer.
func (d *door) raw(request string) (*http.Response, string) {
	d.t.Helper()
	c, err := net.Dial("unix", d.socket)
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, request) // the agent may answer before it has read all
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp, string(body)
}

func (d *door) put(target, value string) (*http.Response, string) {
	return d.raw(fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", target, len(value), value))
}

// Keys are told from targets by nothing but percent decoding, and the client
// makes the same key of it.
func TestKeysSurviveTheSocket(t *testing.T) {
	d := newDoor(t)
	for _, c := range []struct{ target, key string }{
		{"/v1/kv/plain", "plain"},
		{"/v1/kv/app/port", "app/port"},
		{"/v1/kv/app%2Fhost", "app/host"},
		{"/v1/kv//leading", "/leading"},
		{"/v1/kv/a//b", "a//b"},
		{"/v1/kv/a/../b", "a/../b"},
		{"/v1/kv/..", ".."},
		{"/v1/kv/.", "."},
		{"/v1/kv/trailing/", "trailing/"},
		{"/v1/kv//", "/"},
		{"/v1/kv/with%20space", "with space"},
		{"/v1/kv/a+b", "a+b"},
		{"/v1/kv/50%25", "50%"},
		{"/v1/kv/what%3Fnot=%23", "what?not=#"},
		{"/v1/kv/%C3%A9t%C3%A9", "été"},
		{"/v1/kv/%F0%9F%A6%AC", "🦬"},
		{"/v1/kv/%2F%2e%2e%2F", "/../"},
		{"/v1/kv/" + strings.Repeat("x", register.MaxKey), strings.Repeat("x", register.MaxKey)},
	} {
		resp, body := d.put(c.target, "value of "+c.key)
		if resp.StatusCode != 200 || body != "" || resp.Header.Get(client.HeaderVersion) == "" {
			t.Errorf("PUT %s: %d %q, version %q", c.target, resp.StatusCode, body, resp.Header.Get(client.HeaderVersion))
			continue
		}
		r, err := d.client.Get(t.Context(), c.key)
		if err != nil || string(r.Value) != "value of "+c.key {
			t.Errorf("the client reads %q as %q, %v", c.key, r.Value, err)
		}
		if string(r.Version) != resp.Header.Get(client.HeaderVersion) {
			t.Errorf("%q: version %s, written as %s", c.key, r.Version, resp.Header.Get(client.HeaderVersion))
		}
		resp, body = d.raw("GET " + c.target + " HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp.StatusCode != 200 || body != "value of "+c.key {
			t.Errorf("GET %s: %d %q", c.target, resp.StatusCode, body)
		}
		if _, err := d.client.Delete(t.Context(), c.key); err != nil {
			t.Errorf("delete %q: %v", c.key, err)
		}
		if resp, _ = d.raw("GET " + c.target + " HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 404 {
			t.Errorf("GET %s after its deletion: %d", c.target, resp.StatusCode)
		}
	}
}

func TestWhatTheAPIRefuses(t *testing.T) {
	d := newDoor(t)
	big := fmt.Sprint(register.MaxValue + 1)
	for _, c := range []struct {
		request string
		status  int
		code    string
		says    string
	}{
		{"GET /v1/kv/ HTTP/1.1", 400, "refused", "empty"},
		{"GET /v1/kv/a%00b HTTP/1.1", 400, "refused", "control character"},
		{"GET /v1/kv/a%0Ab HTTP/1.1", 400, "refused", "control character"},
		{"GET /v1/kv/%FF HTTP/1.1", 400, "refused", "UTF-8"},
		{"GET /v1/kv/" + strings.Repeat("x", 1025) + " HTTP/1.1", 413, "too_large", "1025"},
		{"PUT /v1/kv/_gus/config HTTP/1.1\r\nContent-Length: 0", 400, "refused", "system's"},
		{"DELETE /v1/kv/_gus/config HTTP/1.1", 400, "refused", "system's"},
		{"GET /v1/kv/_gus/config HTTP/1.1", 404, "not_found", "_gus/config"},
		{"GET /v1/kv/absent HTTP/1.1", 404, "not_found", "absent"},
		{"GET /v1/kv/absent?local=true HTTP/1.1", 404, "not_found", "absent"},
		{"POST /v1/kv/a HTTP/1.1\r\nContent-Length: 0", 400, "refused", "POST"},
		{"GET /v2/kv/a HTTP/1.1", 400, "refused", "/v1/kv/"},
		{"GET / HTTP/1.1", 400, "refused", "/v1/status"},
		{"PUT /v1/kv HTTP/1.1\r\nContent-Length: 0", 400, "refused", "PUT /v1/kv"},
		{"GET /v1/token HTTP/1.1", 400, "refused", "POST /v1/token"},
		{"POST /v1/token?ttl=soon HTTP/1.1\r\nContent-Length: 0", 400, "refused", "soon"},
		{"POST /v1/token?ttl=721h HTTP/1.1\r\nContent-Length: 0", 400, "refused", "1s to 720h"},
		{"POST /v1/token HTTP/1.1\r\nContent-Length: 0", 500, "failed", "founding site cannot be reached"},
		{"GET /v1/kv?limit=0 HTTP/1.1", 400, "refused", "1 to 1000"},
		{"GET /v1/kv?limit=1001 HTTP/1.1", 400, "refused", "1001"},
		{"GET /v1/kv?limit=all HTTP/1.1", 400, "refused", "all"},
		{"GET /v1/kv?local=yes HTTP/1.1", 400, "refused", "true or false"},
		{"GET /v1/kv?prefx=app HTTP/1.1", 400, "refused", "prefx"},
		{"GET /v1/kv?prefix=%FF HTTP/1.1", 400, "refused", "prefix: refused: the key"},
		{"GET /v1/kv?after=a%0Ab HTTP/1.1", 400, "refused", "control character"},
		{"GET /v1/kv?prefix=" + strings.Repeat("x", 1025) + " HTTP/1.1", 413, "too_large", "1025"},
		{"GET /v1/kv?a;b HTTP/1.1", 400, "refused", "semicolon"},
		{"GET /v1/kv/a HTTP/1.1\r\nGus-Timeout: soon", 400, "refused", "soon"},
		{"GET /v1/kv/a HTTP/1.1\r\nGus-Timeout: -1s", 400, "refused", "-1s"},
		{"PUT /v1/kv/a HTTP/1.1\r\nContent-Length: " + big, 413, "too_large", big},
	} {
		line, header, _ := strings.Cut(c.request, "\r\n")
		if header != "" {
			header += "\r\n"
		}
		resp, body := d.raw(line + "\r\nHost: x\r\n" + header + "\r\n")
		var e client.Error
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Errorf("%.60s: %v in %q", line, err, body)
		}
		if resp.StatusCode != c.status || e.Code != c.code || !strings.Contains(e.Message, c.says) {
			t.Errorf("%.60s: %d %s %q, want %d %s with %q", line, resp.StatusCode, e.Code, e.Message, c.status, c.code, c.says)
		}
	}
}

func TestValuesUpToTheLimit(t *testing.T) {
	d := newDoor(t)
	for _, size := range []int{0, 1, 4096, register.MaxValue} {
		value := bytes.Repeat([]byte{0, 0xff, '\n'}, size/3+1)[:size]
		if _, err := d.client.Set(t.Context(), "k", value); err != nil {
			t.Fatalf("set %d bytes: %v", size, err)
		}
		if r, err := d.client.Get(t.Context(), "k"); err != nil || !bytes.Equal(r.Value, value) {
			t.Errorf("%d bytes come back as %d, %v", size, len(r.Value), err)
		}
	}
	if client.MaxValue != register.MaxValue {
		t.Errorf("the client's limit is %d", client.MaxValue)
	}
	// A body of unknown length is counted as it comes.
	over := strings.Repeat("x", register.MaxValue+7)
	resp, body := d.raw(fmt.Sprintf("PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(over), over))
	if resp.StatusCode != 413 || !strings.Contains(body, fmt.Sprint(len(over))) {
		t.Errorf("chunked, too large: %d %q", resp.StatusCode, body)
	}
	resp, body = d.raw("PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
	if resp.StatusCode != 200 {
		t.Errorf("chunked: %d %q", resp.StatusCode, body)
	}
	if r, err := d.client.Get(t.Context(), "k"); err != nil || string(r.Value) != "abc" {
		t.Errorf("chunked: comes back as %q, %v", r.Value, err)
	}
}

func TestTheSocketIsOnesOwn(t *testing.T) {
	d := newDoor(t)
	st, err := os.Lstat(d.socket)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := listen(d.socket); !errors.Is(err, ErrSocketInUse) {
		t.Errorf("a second agent at the socket: %v", err)
	}
	if err := Run(t.Context(), Config{Data: d.data, Listen: "127.0.0.1:0"}); err == nil {
		t.Error("a second agent in the data directory runs")
	}
	if _, err := d.client.Status(t.Context()); err != nil {
		t.Errorf("the first agent after a second was refused: %v", err)
	}
	file := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(file); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the socket's place: %v", err)
	}
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gus.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false) // as after a kill
	dead.Close()
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := listen(filepath.Join(t.TempDir(), strings.Repeat("long", 30))); err == nil || !strings.Contains(err.Error(), "--socket") {
		t.Errorf("a path that is too long: %v", err)
	}
}

func TestWithoutAnIdentityItDoesNotStart(t *testing.T) {
	for _, data := range []string{t.TempDir(), filepath.Join(t.TempDir(), "not", "mounted")} {
		err := Run(t.Context(), Config{Data: data, Listen: "127.0.0.1:0"})
		if !errors.Is(err, ErrNoIdentity) || !strings.Contains(err.Error(), "gus demo") {
			t.Errorf("%v", err)
		}
		left, _ := os.ReadDir(data)
		if len(left) > 0 {
			t.Errorf("it left %v behind", left)
		}
	}
}
