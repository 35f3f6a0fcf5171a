package snapshot

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"gus/register"
)

// anyRecord draws a record with any of its fields in use, and numbers and lengths at
// the edges of CBOR's heads.
func anyRecord(r *rand.Rand) register.Record {
	number := func() uint64 { return r.Uint64() >> r.IntN(65) }
	tag := func() (t register.Tag) {
		if r.IntN(4) > 0 {
			t = register.Tag{TS: number(), Owner: register.Voter(r.IntN(64))}
		}
		return t
	}
	yes := func() bool { return r.IntN(2) == 0 }
	write := func() register.Write {
		w := register.Write{Tag: tag(), Deleted: yes(), Decided: yes()}
		w.Value = bytes.Repeat([]byte{1}, []int{0, 1, 23, 24, 255, 256, 70_000}[r.IntN(7)])
		for range r.IntN(3) * r.IntN(20) {
			w.Known = append(w.Known, tag())
		}
		return w
	}
	rec := register.Record{
		Key: strings.Repeat("k", []int{0, 1, 23, 24, 255, 256, 1024}[r.IntN(7)]),
		Cur: write(), Floor: tag(), Readable: yes(), Mark: tag(),
	}
	for range r.IntN(3) * r.IntN(15) {
		rec.Recs = append(rec.Recs, register.Rec{Write: write(), Accepted: yes(), NoValue: yes()})
	}
	if yes() {
		rec.Pending = &register.Pending{Write: write(), Spec: tag()}
	}
	if yes() {
		rec.Orphan = number()
	}
	return rec
}

func TestRecordsLaidByHandAreTheLibrarys(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and no two goroutines meet")
	}
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 5_000 {
		rec := anyRecord(r)
		got, ok := appendPlain(nil, &rec)
		if !ok {
			t.Fatalf("%+v is not laid by hand", rec)
		}
		var want bytes.Buffer
		if err := c.enc.MarshalToBuffer(&rec, &want); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("%+v\nis      %x\nand not %x", rec, got, want.Bytes())
		}
	}
	for _, rare := range []register.Record{{Heard: []register.Progress{{Voter: 1}}}, {Forgot: &register.Progress{Voter: 1}}} {
		if b, ok := appendPlain([]byte("x"), &rare); ok || string(b) != "x" {
			t.Errorf("%+v is laid as %x", rare, b)
		}
	}
}
