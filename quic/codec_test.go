package quic

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"gus/register"
)

// messages are one of each kind, with all fields in use.
func messages() []register.Message {
	tag := register.Tag{TS: 1 << 62, Owner: 63}
	tags := make([]register.Tag, maxElements)
	for i := range tags {
		tags[i] = register.Tag{TS: 1<<62 + uint64(i), Owner: register.Voter(i)}
	}
	write := register.Write{Tag: tag, Value: []byte("value"), Known: tags, Decided: true}
	round := register.Round{Boot: 3, Count: 1 << 40}
	return []register.Message{
		&register.MsgWrite{Key: "k", Write: write},
		&register.MsgAckWrite{Key: "k", Tag: tag, Clean: true, Blind: register.SetOf(1, 63), MaxTS: 9,
			Own: &register.Verdict{Free: true, Excl: register.SetOf(2)}, Undone: tags},
		&register.MsgCommit{Key: "k", Old: tag, Write: write, NoValue: true},
		&register.MsgNeed{Key: "k", Tag: tag},
		&register.MsgAckCommit{Key: "k", Tag: tag, Undone: tags},
		&register.MsgUpdateView{Key: "k", Tag: tag, Decided: true},
		&register.MsgRead{Key: "k", Round: round, Have: tag},
		&register.MsgAckRead{Key: "k", Round: round, Cur: write, NoValue: true, Floor: &register.Write{Tag: tag, Deleted: true}},
		&register.MsgForward{Key: "k", Round: round, Write: write},
		&register.MsgList{Round: round, Prefix: "a/", After: "a/b", Limit: register.MaxPage},
		&register.MsgAckList{Round: round, Next: "b", Entries: []register.Entry{
			{Key: "a", Tag: tag, Deleted: true}, {Key: "b", Tag: tag, Size: register.MaxValue, Aside: true}}},
		&register.MsgCatchup{Key: "k", Write: write, Held: true},
		&register.MsgAsk{Boot: 1 << 63},
		&register.MsgHeard{Boot: 1 << 63, Saved: 1 << 63, Asked: 1},
		&register.MsgVotes{},
	}
}

// progress is that of as many voters as there may be.
func progress() []register.Progress {
	all := make([]register.Progress, register.MaxVoters)
	for i := range all {
		all[i] = register.Progress{Voter: register.MaxVoter - register.Voter(i), Boot: 1<<64 - 1, Saved: 1<<64 - 1}
	}
	return all
}

func encodeBatch(tb testing.TB, h Header, m ...register.Message) []byte {
	tb.Helper()
	b, err := encodeHeader(h)
	if err != nil {
		tb.Fatal(err)
	}
	for _, m := range m {
		e, err := appendMessage(nil, m)
		if err != nil {
			tb.Fatal(err)
		}
		b = append(b, e...)
	}
	return b
}

func TestBatchesComeBackAsTheyWere(t *testing.T) {
	h := Header{Cluster: Cluster{1, 2, 3}, Configuration: 4, Boot: 1 << 63, Progress: progress()}
	want := Batch{h, messages()}
	got, err := DecodeBatch(encodeBatch(t, h, want.Messages...))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for k := register.KindWrite; k <= register.KindVotes; k++ {
		m := register.NewMessage(k)
		got, err := DecodeBatch(encodeBatch(t, h, m))
		if err != nil || !reflect.DeepEqual(got.Messages, []register.Message{m}) {
			t.Errorf("empty %s: %+v, %v", k, got.Messages, err)
		}
	}
}

func TestTheLargestMessageFits(t *testing.T) {
	write := messages()[0].(*register.MsgWrite).Write
	write.Value = make([]byte, register.MaxValue)
	m := &register.MsgAckRead{Key: strings.Repeat("k", register.MaxKey), Cur: write, Floor: &write}
	b, err := DecodeBatch(encodeBatch(t, Header{}, m))
	if err != nil || !reflect.DeepEqual(b.Messages[0], register.Message(m)) {
		t.Errorf("it does not come back: %v", err)
	}
	write.Value = make([]byte, maxMessage)
	if _, err := appendMessage(nil, &register.MsgWrite{Key: "k", Write: write}); err == nil {
		t.Error("a larger one is encoded")
	}
}

// TestTheExampleInTheDocument holds WIRE.md to the code.
func TestTheExampleInTheDocument(t *testing.T) {
	text, err := os.ReadFile("WIRE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(text), "<!-- example:")
	if !ok {
		t.Fatal("WIRE.md has no example")
	}
	var digits strings.Builder
	for line := range strings.Lines(example) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			code, _, _ = strings.Cut(code, "--")
			digits.WriteString(strings.Join(strings.Fields(code), ""))
		} else if strings.HasPrefix(line, "#") {
			break
		}
	}
	wire, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeBatch(wire)
	if err != nil {
		t.Fatal(err)
	}
	header := Header{Configuration: 1, Boot: 3, Progress: []register.Progress{{Voter: 2, Boot: 5, Saved: 7}, {Voter: 1, Boot: 3, Saved: 41}}}
	want := Batch{header, []register.Message{
		&register.MsgUpdateView{Key: "port", Tag: register.Tag{TS: 7, Owner: 2}},
		&register.MsgRead{Key: "a", Round: register.Round{Boot: 3, Count: 1}},
		&register.MsgRead{Key: "b", Round: register.Round{Boot: 3, Count: 1}, Have: register.Tag{TS: 5, Owner: 1}},
	}}
	for i := range want.Cluster {
		want.Cluster[i] = 0xa0 + byte(i)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the example says %+v, want %+v", got, want)
	}
	if again := encodeBatch(t, want.Header, want.Messages...); !bytes.Equal(again, wire) {
		t.Errorf("encoded: %x\nexample: %x", again, wire)
	}
	for _, limit := range []int{maxBatch, maxMessage, maxBatchMessages, MaxDatagram} {
		if s := grouped(limit); !strings.Contains(string(text), s) {
			t.Errorf("WIRE.md does not state the limit %s", s)
		}
	}
}

// grouped writes n with commas.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return grouped(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

func TestBatchesThatBreakARule(t *testing.T) {
	head := encodeBatch(t, Header{})
	long := strings.Repeat("82 01 01 ", 1001)
	for _, c := range []struct{ name, after, want string }{
		{"an unknown kind", "17 a0", "kind 23"},
		{"kind 0", "00 a0", "kind 0"},
		{"a kind in two bytes", "18 04 a0", "kind 24"},
		{"no body", "04", "not a map"},
		{"a body that is null", "04 f6", "not a map"},
		{"a body that is an array", "04 80", "not a map"},
		{"an indefinite map", "04 bf ff", "indefinite"},
		{"an indefinite string", "04 a1 01 7f 61 61 ff", "indefinite"},
		{"a tag of CBOR", "04 a1 01 c0 61 61", "tag"},
		{"a key twice", "04 a2 01 61 61 01 61 62", "duplicate"},
		{"text that is not UTF-8", "04 a1 01 61 ff", "UTF-8"},
		{"bytes for a key", "04 a1 01 41 61", "byte string"},
		{"text for a value", "01 a1 02 a1 02 61 61", "UTF-8 text string"},
		{"a negative number", "04 a1 02 82 20 01", "negative"},
		{"an owner of more than a byte", "04 a1 02 82 01 19 01 00", "overflow"},
		{"a tag of one item", "04 a1 02 81 01", "elements"},
		{"a tag of three items", "04 a1 02 83 01 01 01", "elements"},
		{"1001 tags", "05 a1 03 99 03 e9 " + long, "array"},
		{"a promise of many tags", "05 a1 03 9a ff ff ff ff", "array"},
		{"a map of 17 pairs", "04 b1 " + strings.Repeat("00 00 ", 17), "map"},
		{"an unknown field, nested deep", "04 a1 14 " + strings.Repeat("81 ", 40) + "00", "nest"},
		{"half a message", "04 a1 01 61", "EOF"},
		{"bytes after it", "04 a0 ff", "kind 255"},
	} {
		tail, err := hex.DecodeString(strings.ReplaceAll(c.after, " ", ""))
		if err != nil {
			t.Fatal(c.name, err)
		}
		_, err = DecodeBatch(append(bytes.Clone(head), tail...))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something with %q", c.name, err, c.want)
		}
	}
	const id = "85 01 50 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf 01 03 " // all but the progress
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", "EOF"},
		{"another version", "85 02" + id[5:] + "80", "version 2"},
		{"a short cluster id", "85 01 41 a0 01 03 80", "1 bytes"},
		{"a number for the progress", id + "00", "positive integer"},
		{"progress of 10 voters", id + "8a " + strings.Repeat("83 01 01 01 ", 10), "10 voters"},
		{"progress of very many voters", id + "9a ff ff ff ff", "array"},
		{"progress of voter 0", id + "81 83 00 01 01", "voter 0"},
		{"progress of voter 64", id + "81 83 18 40 01 01", "voter 64"},
		{"progress of voter 256", id + "81 83 19 01 00 01 01", "overflow"},
		{"progress without a record", id + "81 82 01 01", "elements"},
		{"progress with a fourth item", id + "81 84 01 01 01 01", "elements"},
		{"progress that is null", id + "f6", "null"},
		{"progress of a voter that is null", id + "81 f6", "voter 0"},
		{"progress of a negative record", id + "81 83 01 01 20", "negative"},
		{"progress in a map", id + "81 a1 01 01", "map"},
		{"half of the progress", id + "81 83 01", "EOF"},
		{"four items", "84 01 41 a0 01 03", "elements"},
		{"no header", "04 a0", "header"},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(c.in, " ", ""))
		if err != nil {
			t.Fatal(c.name, err)
		}
		if _, err := DecodeBatch(b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something with %q", c.name, err, c.want)
		}
	}
	if _, err := DecodeBatch(make([]byte, maxBatch+1)); err == nil {
		t.Error("a batch beyond the limit")
	}
	if _, err := DecodeBatch(append(bytes.Clone(head), bytes.Repeat([]byte{4, 0xa0}, maxBatchMessages+1)...)); err == nil {
		t.Error("more messages than the limit")
	}
}

func TestUnknownFieldsAreSkipped(t *testing.T) {
	b := append(encodeBatch(t, Header{}), 4, 0xa2, 1, 0x61, 'k', 0x14, 0x82, 1, 0xa1, 1, 2)
	got, err := DecodeBatch(b)
	if err != nil || len(got.Messages) != 1 || got.Messages[0].Register() != "k" {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzDecodeBatch: whatever is decoded is encoded again to the same value, and
// nothing makes the decoder panic.
func FuzzDecodeBatch(f *testing.F) {
	h := Header{Cluster: Cluster{1}, Configuration: 1, Boot: 2, Progress: progress()}
	f.Add(encodeBatch(f, h, messages()...))
	for _, m := range messages() {
		f.Add(encodeBatch(f, h, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := DecodeBatch(b)
		if err != nil {
			return
		}
		canonical := encodeBatch(t, got.Header, got.Messages...)
		again, err := DecodeBatch(canonical)
		if err != nil {
			t.Fatalf("encoded again, it is refused: %v", err)
		}
		if b := encodeBatch(t, again.Header, again.Messages...); !bytes.Equal(b, canonical) {
			t.Errorf("it changes:\n%x\n%x", canonical, b)
		}
	})
}

// FuzzFrame: a frame that is read is written to the same bytes.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0}, 10)
	f.Add([]byte{0, 0, 0, 1, 'a', 'b'}, 1)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 'a'}, 1<<30)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		r := bytes.NewReader(b)
		p, err := ReadFrame(r, limit)
		if err != nil {
			return
		}
		if len(p) > max(limit, 0) {
			t.Errorf("%d bytes past a limit of %d", len(p), limit)
		}
		var out bytes.Buffer
		if err := WriteFrame(&out, p); err != nil {
			t.Fatal(err)
		}
		if read := b[:len(b)-r.Len()]; !bytes.Equal(out.Bytes(), read) {
			t.Errorf("read %x, wrote %x", read, out.Bytes())
		}
	})
}

// usual are messages as they are when nothing contends.
func usual() []register.Message {
	tag := register.Tag{TS: 1 << 62, Owner: 3}
	write := register.Write{Tag: tag, Value: make([]byte, 16)}
	round := register.Round{Boot: 3, Count: 1 << 40}
	return []register.Message{
		&register.MsgWrite{Key: "app/port", Write: write},
		&register.MsgAckWrite{Key: "app/port", Tag: tag, Clean: true, MaxTS: tag.TS},
		&register.MsgCommit{Key: "app/port", Old: tag, Write: write},
		&register.MsgNeed{Key: "app/port", Tag: tag},
		&register.MsgAckCommit{Key: "app/port", Tag: tag},
		&register.MsgUpdateView{Key: "app/port", Tag: tag, Decided: true},
		&register.MsgRead{Key: "app/port", Round: round, Have: tag},
		&register.MsgAckRead{Key: "app/port", Round: round, Cur: write, NoValue: true},
		&register.MsgForward{Key: "app/port", Round: round, Write: write},
	}
}

func BenchmarkMessages(b *testing.B) {
	for _, m := range usual() {
		e, err := appendMessage(nil, m)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("encode/"+m.Kind().String(), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(e)))
			for b.Loop() {
				if _, err := appendMessage(nil, m); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("decode/"+m.Kind().String(), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(e)))
			for b.Loop() {
				if _, _, err := decodeMessage(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
