package quic

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"gus/register"
)

// What is read by hand is read as the library reads it, and read again from what is laid by hand.
func FuzzReadByHand(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 40 {
		m := anyMessage(r)
		if b, _ := appendPlain(nil, m); len(b) < 1000 {
			f.Add(byte(m.Kind()), b)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		got, want := register.NewMessage(register.Kind(kind)), register.NewMessage(register.Kind(kind))
		if got == nil {
			return
		}
		rest, ok := readPlain(b, got)
		if !ok {
			return
		}
		wantRest, err := decoding.UnmarshalFirst(b, want)
		if err != nil || !reflect.DeepEqual(got, want) || !bytes.Equal(rest, wantRest) {
			t.Fatalf("%x\nwas read as %+v, and the library reads %+v, %v", b, got, want, err)
		}
		laid, _ := appendPlain(nil, got)
		if lib, err := encoding.Marshal(got); err != nil || !bytes.Equal(laid, lib) {
			t.Fatalf("%+v is laid as %x, not %x, %v", got, laid, lib, err)
		}
	})
}
