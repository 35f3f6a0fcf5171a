package snapshot

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"gus/register"
)

// What plain decodes is what the decoder in general makes of it, and it knows
// the records of which there are many. Of wrong ones it may know nothing, but
// never anything else.
func TestPlainRecords(t *testing.T) {
	c, err := newCodec()
	must(t, err)
	rng := rand.New(rand.NewPCG(21, 22))
	records := []register.Record{settled(1, 1), settled(2, 1<<40), {}, {Key: "k"}, {Key: "\xff", Readable: true}}
	for seq := register.Seq(1); seq < 40; seq++ {
		for _, r := range workload(seq) {
			records = append(records, r)
			r.Pending, r.Cur.Known, r.Floor = nil, nil, register.Tag{}
			records = append(records, r)
		}
	}
	known, wrong := 0, 0
	decoder := plainReader{ahead: 5}
	check := func(body []byte) (ok bool) {
		var got register.Record
		if !decoder.record(body, &got) {
			return false
		}
		want, rest, err := func() (r register.Record, rest []byte, err error) {
			rest, err = c.dec.UnmarshalFirst(body, &r)
			return r, rest, err
		}()
		if err != nil || len(rest) > 0 || !reflect.DeepEqual(got, want) {
			t.Fatalf("%x is\n%+v, want\n%+v, %v", body, got, want, err)
		}
		return true
	}
	for i, r := range records {
		var body bytes.Buffer
		must(t, c.append(&body, r))
		if check(body.Bytes()) {
			known++
		} else if i < 2 {
			t.Errorf("it does not know %+v", r)
		}
		for range 200 {
			mutant := bytes.Clone(body.Bytes())
			mutant[rng.IntN(len(mutant))] ^= 1 << rng.IntN(8)
			if check(mutant[:rng.IntN(4)*len(mutant)/3%(len(mutant)+1)]) || check(mutant) {
				wrong++
			}
		}
	}
	t.Logf("it knows %d of %d records, and %d wrong ones", known, len(records), wrong)
	if known < len(records)/4 {
		t.Errorf("it knows only %d of %d records", known, len(records))
	}
}
