package plain

import (
	"math"
	"reflect"
	"testing"

	"gus/register"
)

// What is laid is read, up to the last byte; cut anywhere it is not. That the bytes are the library's is
// tested where the library is: by quic and by snapshot.
func TestWhatIsLaidIsRead(t *testing.T) {
	for _, n := range []uint64{0, 23, 24, math.MaxUint8, math.MaxUint8 + 1, math.MaxUint16, math.MaxUint16 + 1, math.MaxUint32, math.MaxUint32 + 1, math.MaxUint64} {
		want := register.Write{
			Tag: register.Tag{TS: n, Owner: register.MaxVoter}, Value: []byte("v"), Deleted: true, Decided: true,
			Known: []register.Tag{{TS: n, Owner: 1}, {TS: 1, Owner: 2}},
		}
		b := AppendText(AppendWrite(nil, &want), "end")
		r := Reader{Data: b, OK: true}
		if got, end := r.Write(), r.Text(); !r.OK || len(r.Data) > 0 || end != "end" || !reflect.DeepEqual(got, want) {
			t.Errorf("%x is %+v and %q, with %x left, %v; want %+v", b, got, end, r.Data, r.OK, want)
		}
		for i := range b {
			r := Reader{Data: b[:i], OK: true}
			if r.Write(); r.OK {
				r.Text()
			}
			if r.OK {
				t.Errorf("%x is read, the first %d bytes of %x", b[:i], i, b)
			}
		}
	}
}

func TestWhatIsOddIsNotRead(t *testing.T) {
	for _, b := range []string{
		"\xa2\x01\x82\x01\x01\x01\x82\x01\x01", // a field twice
		"\xa1\x06\x01",                         // one that is not known
		"\xa1\x01\x81\x01",                     // a tag of one number
		"\xa1\x01\x82\x01\x18\x40",             // no voter has that number
		"\xa1\x02\x40",                         // a value of no bytes
		"\xa1\x03\xf4",                         // a false
		"\xa1\x04\x80",                         // no tags
		"\xbf\xff",                             // a map without a length
		"\x80",
	} {
		r := Reader{Data: []byte(b), OK: true}
		if w := r.Write(); r.OK {
			t.Errorf("%x is read as %+v", b, w)
		}
	}
}
