package client

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// response is what the agent answered.
type response struct {
	status int
	header http.Header
	body   []byte
	last   bool // of its connection
}

// receive reads a response to the end, so that the connection can be used again.
func (c *conn) receive() (*response, error) {
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := readBody(resp)
	if err != nil {
		return nil, err
	}
	return &response{status: resp.StatusCode, header: resp.Header, body: body, last: resp.Close}, nil
}

// maxBody is the size of the largest answer in bytes: a page of keys, which JSON
// makes longer. The agent is no stranger; this only keeps a mistake from
// eating the memory.
const maxBody = 16 << 20

func readBody(resp *http.Response) ([]byte, error) {
	if n := resp.ContentLength; n >= 0 && n <= MaxValue {
		body := make([]byte, n)
		_, err := io.ReadFull(resp.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("the agent's answer has more than %d bytes", maxBody)
	}
	return body, err
}

// reply returns what r says.
func (r *response) reply() Reply {
	p := Reply{
		Status:  r.status,
		Version: Version(r.header.Get(HeaderVersion)),
		Via:     r.header.Get(HeaderVia),
		Newer:   r.header.Get(HeaderNewer) == "true",
		Pending: r.header.Get(HeaderPending) == "true",
		Body:    r.body,
	}
	if ms, err := strconv.ParseInt(r.header.Get(HeaderAge), 10, 64); err == nil {
		p.Age = time.Duration(ms) * time.Millisecond
	}
	p.RoundTrips, _ = strconv.Atoi(r.header.Get(HeaderRoundTrips))
	return p
}

// result returns what r says, or the error that it stands for.
func (r *response) result() (Result, error) {
	p := r.reply()
	return p.result()
}
