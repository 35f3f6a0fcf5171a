package quic

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"gus/register"
)

// anyMessage draws a message of one of the kinds that are laid by hand, with any of its
// fields in use, and numbers and lengths at the edges of CBOR's heads.
func anyMessage(r *rand.Rand) register.Message {
	number := func() uint64 { return r.Uint64() >> r.IntN(65) }
	tag := func() register.Tag {
		return register.Tag{TS: number(), Owner: register.Voter(r.IntN(int(register.MaxVoter) + 1))}
	}
	tags := func() (all []register.Tag) {
		for range r.IntN(4) * r.IntN(40) {
			all = append(all, tag())
		}
		return all
	}
	yes := func() bool { return r.IntN(2) == 0 }
	key := strings.Repeat("k", []int{1, 23, 24, 255, 256, 1024}[r.IntN(6)])
	write := func() register.Write {
		w := register.Write{Tag: tag(), Known: tags(), Deleted: yes(), Decided: yes()}
		if n := []int{0, 1, 23, 24, 300, 70_000}[r.IntN(6)]; n > 0 {
			w.Value = bytes.Repeat([]byte{9}, n)
		}
		return w
	}
	round := register.Round{Boot: number(), Count: number()}
	switch r.IntN(5) {
	case 0:
		return &register.MsgWrite{Key: key, Write: write()}
	case 1:
		return &register.MsgAckWrite{Key: key, Tag: tag(), Clean: yes(), Blind: register.Set(number()), MaxTS: number(), Undone: tags()}
	case 2:
		return &register.MsgUpdateView{Key: key, Tag: tag(), Decided: yes()}
	case 3:
		m := &register.MsgRead{Key: key, Round: round}
		if yes() {
			m.Have = tag()
		}
		return m
	}
	m := &register.MsgAckRead{Key: key, Round: round, Cur: write(), NoValue: yes()}
	if yes() {
		w := write()
		m.Floor = &w
	}
	return m
}

func TestMessagesLaidByHandAreTheLibrarys(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		m := anyMessage(r)
		got, ok := appendPlain(nil, m)
		if !ok {
			t.Fatalf("%+v is not laid by hand", m)
		}
		want, err := encoding.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v\nis      %x\nand not %x", m, got, want)
		}
		back, rest, err := decodeMessage(append([]byte{byte(m.Kind())}, append(got, 1, 2)...))
		if err != nil || !reflect.DeepEqual(back, m) || !bytes.Equal(rest, []byte{1, 2}) {
			t.Fatalf("%+v\nwas read as %+v, with %x left, %v", m, back, rest, err)
		}
	}
}

// What is odd in the least is read as the library reads it, or refused as it refuses it.
func TestMessagesReadByHandAreTheLibrarys(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and no two goroutines meet")
	}
	r := rand.New(rand.NewPCG(3, 4))
	read := 0
	for range 100_000 {
		m := anyMessage(r)
		b, _ := appendPlain(nil, m)
		if len(b) > 2000 {
			continue
		}
		for range 1 + r.IntN(2) {
			switch at := r.IntN(len(b)); r.IntN(4) {
			case 0:
				b[at] ^= 1 << r.IntN(8)
			case 1:
				b = b[:at+1]
			case 2:
				b = append(b[:at:at], append([]byte{byte(r.Uint32())}, b[at:]...)...)
			case 3:
				b[r.IntN(min(len(b), 6))] = byte(r.Uint32())
			}
		}
		got, want := register.NewMessage(m.Kind()), register.NewMessage(m.Kind())
		rest, ok := readPlain(b, got)
		if !ok {
			continue
		}
		read++
		wantRest, err := decoding.UnmarshalFirst(b, want)
		if err != nil || !reflect.DeepEqual(got, want) || !bytes.Equal(rest, wantRest) {
			t.Fatalf("%x\nwas read as %+v, and the library reads %+v, %v", b, got, want, err)
		}
	}
	if read < 1000 {
		t.Errorf("only %d of what was changed could be read", read)
	}
}
