package agent

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"gus/agent/client"
	"gus/quic"
	"gus/register"
)

// purposeForward is that of a stream on which an observer passes on what its
// local clients ask; quic/WIRE.md states the bytes.
const purposeForward quic.Purpose = 6

// What can be passed on.
const (
	forwardGet  = 1
	forwardSet  = 2
	forwardList = 3
)

const (
	// maxForward is the size of the largest question: a set of the largest value.
	maxForward = register.MaxValue + 4<<10
	// maxForwards is how many requests an observer has under way at one voter, each on a
	// stream of its own. A voter serves twice as many: it may hear of a new stream before
	// it hears of the end of an old one.
	maxForwards = 32
	// maxMessage is how much of an answer's message is passed on, in bytes.
	maxMessage = 1 << 10
)

// forwardAsk is a local client's question on its way to a voter.
type forwardAsk struct {
	Version uint64 `cbor:"1,keyasint"`
	Kind    int    `cbor:"2,keyasint"`
	Key     string `cbor:"3,keyasint,omitempty"` // of a list, the prefix
	Value   []byte `cbor:"4,keyasint,omitempty"`
	Deleted bool   `cbor:"5,keyasint,omitempty"` // a set removes the key
	After   string `cbor:"6,keyasint,omitempty"` // of a list
	Limit   int    `cbor:"7,keyasint,omitempty"` // of a list
	Timeout int64  `cbor:"8,keyasint"`           // for how long the voter may try, in microseconds
}

// forwardAnswer is what a voter made of it: a result, or an error's code and message.
type forwardAnswer struct {
	Code       string           `cbor:"1,keyasint,omitempty"` // as the local API has it
	Message    string           `cbor:"2,keyasint,omitempty"`
	Tag        register.Tag     `cbor:"3,keyasint"`
	Value      []byte           `cbor:"4,keyasint,omitempty"`
	Found      bool             `cbor:"5,keyasint,omitempty"`
	RoundTrips int              `cbor:"6,keyasint,omitempty"` // between voters
	Entries    []register.Entry `cbor:"7,keyasint,omitempty"`
	Next       string           `cbor:"8,keyasint,omitempty"`
}

// newForwardAsk is q as it is passed on. Its kind is get, set or list.
func newForwardAsk(q question) *forwardAsk {
	a := &forwardAsk{Version: streamVersion, Key: q.key, Value: q.value, Deleted: q.deleted, After: q.after, Limit: q.limit}
	switch q.kind {
	case kindGet:
		a.Kind = forwardGet
	case kindSet:
		a.Kind = forwardSet
	case kindList:
		a.Kind = forwardList
	default:
		panic(fmt.Sprintf("agent: a question of kind %d is not passed on", q.kind))
	}
	return a
}

// question returns what the observer asks, or an error for it, of the same kinds as a
// local client is told. Of the system's keys an observer writes those that tell how its
// own files are; that its users do not, it sees to itself.
func (a *forwardAsk) question(observer string) (question, error) {
	timeout := maxTimeout
	if a.Timeout < maxTimeout.Microseconds() {
		timeout = time.Duration(a.Timeout) * time.Microsecond
	}
	q := question{key: a.Key, value: a.Value, deleted: a.Deleted, after: a.After, limit: a.Limit, timeout: timeout}
	switch a.Kind {
	case forwardGet:
		q.kind = kindGet
		return q, checkKey(a.Key)
	case forwardSet:
		q.kind = kindSet
		if q.value == nil && !q.deleted {
			q.value = []byte{}
		}
		if err := checkKey(a.Key); err != nil {
			return q, err
		}
		if len(a.Value) > register.MaxValue {
			return q, client.TooLarge(int64(len(a.Value)))
		}
		if strings.HasPrefix(a.Key, client.SyncKeys+observer+"/") {
			return q, nil
		}
		return q, checkWritable(a.Key)
	}
	q.kind = kindList
	for _, key := range []string{a.Key, a.After} {
		if key == "" {
			continue
		}
		if err := checkKey(key); err != nil {
			return q, err
		}
	}
	return q, nil
}

// check refuses a question that no observer asks.
func (a *forwardAsk) check() error {
	switch {
	case a.Version != streamVersion:
		return nonsense("version %d, this is version %d", a.Version, streamVersion)
	case a.Kind != forwardGet && a.Kind != forwardSet && a.Kind != forwardList:
		return nonsense("a question of kind %d", a.Kind)
	case a.Timeout <= 0:
		return nonsense("a timeout of %d us", a.Timeout)
	case a.Kind == forwardList && (a.Limit < 1 || a.Limit > register.MaxPage):
		return nonsense("a page of %d keys", a.Limit)
	case a.Kind != forwardSet && (len(a.Value) > 0 || a.Deleted), a.Deleted && len(a.Value) > 0:
		return nonsense("a value where none belongs")
	}
	return nil
}

// newForwardAnswer is a as an observer is told it.
func newForwardAnswer(a answer) *forwardAnswer {
	if a.err != nil {
		_, code := client.Code(a.err)
		return &forwardAnswer{Code: code, Message: a.err.Error()}
	}
	r := a.result
	return &forwardAnswer{Tag: r.Tag, Value: r.Value, Found: r.Found, RoundTrips: r.RoundTrips, Entries: r.Entries, Next: r.Next}
}

// check refuses an answer that no voter gives.
func (f *forwardAnswer) check() error {
	if len(f.Value) > register.MaxValue || f.RoundTrips < 0 || len(f.Code) > maxMessage {
		return nonsense("a value of %d bytes in %d round trips, or an error's code of %d bytes", len(f.Value), f.RoundTrips, len(f.Code))
	}
	return nil
}

// answer is what the voter via says, for the local client of an observer: with one
// round trip more, that to the voter.
func (f *forwardAnswer) answer(via string) answer {
	a := answer{via: via}
	if f.Code != "" {
		a.err = &client.Error{Code: f.Code, Message: via + " answered: " + oneLine(f.Message)}
		return a
	}
	a.result = register.Result{Tag: f.Tag, Value: f.Value, Found: f.Found, RoundTrips: f.RoundTrips + 1, Entries: f.Entries, Next: f.Next}
	return a
}

// oneLine is another site's message as it may be shown to people.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), maxMessage)], "")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
