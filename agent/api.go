package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"gus/agent/client"
	"gus/register"
	"gus/snapshot"
)

const (
	kvPath     = "/v1/kv/"
	listPath   = "/v1/kv"
	statusPath = "/v1/status"
	tokenPath  = "/v1/token"
	verifyPath = "/v1/verify"

	// systemKeys is the prefix of keys that users may read and not write.
	systemKeys = "_gus/"

	// defaultTimeout is that of a request that names none, maxTimeout that of
	// one that names more: what waits costs memory.
	defaultTimeout = 5 * time.Second
	maxTimeout     = 10 * time.Minute
)

// api answers HTTP requests. It has no ServeMux, which would clean paths: keys
// may begin with a slash and hold "//" and "..".
type api struct {
	desk   *desk
	ask    func(context.Context, question) answer // of kind get, set or list: an observer's forwarder; nil: the desk
	writer func(register.Voter) string            // a voter's name
	token  func(ctx context.Context, life time.Duration) (string, error)
	status func(loopStatus) client.Status
	verify func(context.Context) (client.Verification, error)
	sync   func(w http.ResponseWriter, r *http.Request, name string) error // of a job that keeps files
	watch  func(w http.ResponseWriter, r *http.Request) error
	past   *snapshot.Store
	backup func(w http.ResponseWriter, r *http.Request) error
	age    func() time.Duration // how old what this site holds may be

	handlers sync.WaitGroup
	ending   chan struct{} // closed when serve is to end; nil: nobody serves
}

// serve answers on l until ctx ends; then it lets what is under way finish, which
// the loop's stop brings about at once.
func (a *api) serve(ctx context.Context, l net.Listener, log *slog.Logger) error {
	srv := &http.Server{
		Handler:           a,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	a.ending = make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		close(a.ending)
		return fmt.Errorf("serve the local API: %w", err)
	case <-ctx.Done():
	}
	close(a.ending)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := srv.Shutdown(grace)
	if err != nil {
		err = srv.Close()
	}
	<-done
	a.handlers.Wait() // what they read is about to be closed
	return err
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.handlers.Add(1)
	defer a.handlers.Done()
	var err error
	switch key, ok := strings.CutPrefix(r.URL.Path, kvPath); {
	case ok:
		err = a.kv(w, r, key)
	case r.URL.Path == client.PipePath && r.Method == http.MethodGet && r.Header.Get("Upgrade") == client.PipeUpgrade:
		err = a.pipe(w, r)
	case r.URL.Path == listPath && r.Method == http.MethodGet:
		err = a.list(w, r)
	case strings.HasPrefix(r.URL.Path, historyPath) && r.Method == http.MethodGet:
		err = a.history(w, r, strings.TrimPrefix(r.URL.Path, historyPath))
	case r.URL.Path == epochsPath && r.Method == http.MethodGet:
		err = a.epochs(w, r)
	case r.URL.Path == watchPath && r.Method == http.MethodGet:
		err = a.watch(w, r)
	case r.URL.Path == snapshotPath && r.Method == http.MethodGet && a.backup != nil:
		err = a.backup(w, r)
	case r.URL.Path == statusPath && r.Method == http.MethodGet:
		err = a.getStatus(w, r)
	case r.URL.Path == verifyPath && r.Method == http.MethodGet:
		err = a.getVerify(w, r)
	case r.URL.Path == tokenPath && r.Method == http.MethodPost:
		err = a.postToken(w, r)
	case strings.HasPrefix(r.URL.Path, syncPath) && r.Method == http.MethodPut && a.sync != nil:
		err = a.sync(w, r, strings.TrimPrefix(r.URL.Path, syncPath))
	default:
		err = fmt.Errorf("%w: there is no %s %s: the local API has GET, PUT and DELETE %sKEY, GET %s, GET %s, GET %s and POST %s",
			client.ErrRefused, r.Method, r.URL.Path, kvPath, listPath, statusPath, verifyPath, tokenPath)
	}
	if err != nil {
		fail(w, err)
	}
}

// answer has a question answered by who is to: an observer passes on what needs a
// quorum.
func (a *api) answer(ctx context.Context, q question) answer {
	if a.ask == nil || q.kind != kindGet && q.kind != kindSet && q.kind != kindList {
		return a.desk.ask(ctx, q)
	}
	return a.ask(ctx, q)
}

func (a *api) kv(w http.ResponseWriter, r *http.Request, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	timeout, err := timeoutOf(r)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet:
		if inPast(r) {
			return a.getPast(w, r, key, timeout)
		}
		q := question{kind: kindGet, key: key, timeout: timeout}
		if r.URL.RawQuery != "" && r.URL.Query().Get("local") == "true" {
			q.kind = kindPeek
		}
		return a.read(w, r, q)
	case http.MethodPut, http.MethodDelete:
		return a.set(w, r, key, timeout)
	}
	return fmt.Errorf("%w: %s is not GET, PUT or DELETE", client.ErrRefused, r.Method)
}

// checkKey says whether key may be asked for.
func checkKey(key string) error {
	err := register.CheckKey(key)
	switch {
	case err == nil:
		return nil
	case len(key) > register.MaxKey:
		return fmt.Errorf("%w: %w", client.ErrTooLarge, err)
	}
	return fmt.Errorf("%w: %w", client.ErrRefused, err)
}

// checkWritable says whether users may write to key.
func checkWritable(key string) error {
	if strings.HasPrefix(key, systemKeys) {
		return fmt.Errorf("%w: keys below %s are the system's: they can be read and not written", client.ErrRefused, systemKeys)
	}
	return nil
}

func timeoutOf(r *http.Request) (time.Duration, error) {
	h := r.Header[client.HeaderTimeout]
	if len(h) == 0 {
		return defaultTimeout, nil
	}
	d, err := time.ParseDuration(h[0])
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%w: %s: %q is not a duration such as 5s", client.ErrRefused, client.HeaderTimeout, h[0])
	}
	return min(d, maxTimeout), nil
}

// read answers a get, or a peek at what this site knows.
func (a *api) read(w http.ResponseWriter, r *http.Request, q question) error {
	if err := a.desk.admit(0); err != nil {
		return err
	}
	defer a.desk.release(0)
	ans := a.answer(r.Context(), q)
	writeReply(w, q, ans, a.reply(q, ans))
	return nil
}

func (a *api) set(w http.ResponseWriter, r *http.Request, key string, timeout time.Duration) error {
	if err := checkWritable(key); err != nil {
		return err
	}
	var size int64
	if r.Method == http.MethodPut {
		if size = r.ContentLength; size > register.MaxValue {
			return client.TooLarge(size)
		} else if size < 0 {
			size = register.MaxValue
		}
	}
	if err := a.desk.admit(size); err != nil {
		return err
	}
	defer a.desk.release(size)
	q := question{kind: kindSet, key: key, deleted: r.Method == http.MethodDelete, timeout: timeout}
	if !q.deleted {
		var err error
		if q.value, err = readBody(w, r, timeout); err != nil {
			return err
		}
	}
	ans := a.answer(r.Context(), q)
	writeReply(w, q, ans, a.reply(q, ans))
	return nil
}

// readBody returns the body in a slice of its own, which the replica keeps. A
// client may take as long to send it as it gives the agent to do something.
func readBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) ([]byte, error) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(timeout)) // no deadline, as in a test's recorder: no limit
	body, err := readValue(r)
	if err != nil {
		// What is left of the body is not worth waiting for: the deadline
		// stays, and the connection ends with the answer.
		w.Header().Set("Connection", "close")
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: the value did not arrive within %v: nothing changed", client.ErrRefused, timeout)
		}
		return nil, err
	}
	_ = c.SetReadDeadline(time.Time{}) // left in place, it would look like a client that went away
	return body, nil
}

func readValue(r *http.Request) ([]byte, error) {
	if n := r.ContentLength; n >= 0 {
		body := make([]byte, n)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return nil, fmt.Errorf("%w: read the value: %w", client.ErrRefused, err)
		}
		return body, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, register.MaxValue+1))
	if err != nil {
		return nil, fmt.Errorf("%w: read the value: %w", client.ErrRefused, err)
	}
	if len(body) > register.MaxValue {
		rest, err := io.Copy(io.Discard, io.LimitReader(r.Body, maxRequestBytes))
		return nil, errors.Join(client.TooLarge(int64(len(body))+rest), err)
	}
	return body, nil
}

func (a *api) getStatus(w http.ResponseWriter, r *http.Request) error {
	ans := a.desk.ask(r.Context(), question{kind: kindStatus, timeout: defaultTimeout})
	if ans.err != nil {
		return ans.err
	}
	return sendJSON(w, a.status(ans.status))
}
