package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"time"

	"gus/register"
)

// A backup is one file, or one stream, of a format of its own:
//
//	"gus backup 1\n"        what it is and the version of its format
//	frame: header           a CBOR map: whose it is, and up to what
//	frame: entries ...      CBOR sequences of keys, each key once, in order
//	frame: trailer          counts, and the SHA-256 of all before this frame
//
// A frame is the length of its body (4 bytes), a CRC-32C of that, of the frame's
// number and of the body, and the body, whose first byte is the frame's kind.
//
// Why not a database that SQLite's VACUUM INTO makes? It would carry this voter's
// promises, which nobody must restore, it cannot be sent while it is made,
// has no sums over its pages, and its schema is that of one version. Here each
// wrong bit is found, and where; a file that ends early lacks its trailer; memory is a
// frame; and a reader skips the fields of a map that it does not know, so that an older
// file stays readable and a newer one can say that it is.
const (
	backupMagic   = "gus backup "
	backupVersion = 1

	frameHead = 8        // bytes before a frame's body
	frameSize = 64 << 10 // of a body: it ends with the entry that reaches it
	maxFrame  = 2 << 20  // of the largest body: an entry on top of frameSize
)

// The kinds of frames.
const (
	kindHeader  = 'H'
	kindEntries = 'E'
	kindTrailer = 'T'
	kindFailure = 'F' // of a stream only: why there is no more, in words
)

// trailerSize is the size of the trailer's body: its kind, three counts, the digest.
const trailerSize = 1 + 3*8 + sha256.Size

// Origin says what a backup is of.
type Origin struct {
	Cluster string // the id
	Site    string // its name
	Program string // the version of the program that made it
	Time    time.Time
	// Epoch is the number of the newest epoch that is complete in it; 0: none was.
	Epoch uint64
	// Seq is the save of Database up to which it has all.
	Seq      register.Seq
	Database uint64
}

// Entry is a key as a backup has it: its newest write that the site held.
type Entry struct {
	Key     string       `cbor:"1,keyasint"`
	Tag     register.Tag `cbor:"2,keyasint"`
	Value   []byte       `cbor:"3,keyasint,omitempty"`
	Deleted bool         `cbor:"4,keyasint,omitempty"` // it was deleted, by the write of that tag
	// Unsettled says that the site did not know the write to be settled: it may
	// be that nobody was told that it was done. A read would have settled it, and so does restoring.
	Unsettled bool `cbor:"5,keyasint,omitempty"`
}

// Summary is what a whole backup comes to.
type Summary struct {
	Origin
	Keys      int64             // with a value
	Deleted   int64             // remembered deletions
	Unsettled int64             // of both
	Size      int64             // of the file, in bytes
	Digest    [sha256.Size]byte // of all but its last frame
	Owner     register.Voter    // the highest number of a voter among the versions; 0 where only the ends were read
}

// header is Origin as the file has it.
type header struct {
	Cluster  string       `cbor:"1,keyasint"`
	Site     string       `cbor:"2,keyasint"`
	Program  string       `cbor:"3,keyasint"`
	Time     int64        `cbor:"4,keyasint"` // in ms since 1970
	Epoch    uint64       `cbor:"5,keyasint"`
	Seq      register.Seq `cbor:"6,keyasint"`
	Database uint64       `cbor:"7,keyasint"`
}

// backupWriter writes a backup.
type backupWriter struct {
	w       io.Writer
	codec   codec
	digest  hash.Hash
	frames  uint64
	body    bytes.Buffer // of the frame that is being filled
	summary Summary
}

// newBackupWriter begins a backup.
func newBackupWriter(w io.Writer, o Origin) (*backupWriter, error) {
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	o.Time = time.UnixMilli(o.Time.UnixMilli())
	b := &backupWriter{w: w, codec: c, digest: sha256.New(), summary: Summary{Origin: o}}
	if err := b.write(fmt.Appendf(nil, "%s%d\n", backupMagic, backupVersion)); err != nil {
		return nil, err
	}
	b.begin(kindHeader)
	h := header{o.Cluster, o.Site, o.Program, o.Time.UnixMilli(), o.Epoch, o.Seq, o.Database}
	if err := c.enc.MarshalToBuffer(&h, &b.body); err != nil {
		return nil, fmt.Errorf("encode a backup's header: %w", err)
	}
	if err := b.end(); err != nil {
		return nil, err
	}
	b.begin(kindEntries)
	return b, nil
}

// begin begins a frame.
func (b *backupWriter) begin(kind byte) {
	b.body.Reset()
	b.body.WriteByte(kind)
}

// end writes the frame.
func (b *backupWriter) end() error {
	body := b.body.Bytes()
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	head = binary.BigEndian.AppendUint32(head, frameSum(b.frames, body))
	b.frames++
	if err := b.write(head); err != nil {
		return err
	}
	return b.write(body)
}

// frameSum is the sum of a frame: frames that change places are found too.
func frameSum(number uint64, body []byte) uint32 {
	head := binary.BigEndian.AppendUint64(nil, number)
	head = binary.BigEndian.AppendUint32(head, uint32(len(body)))
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
}

func (b *backupWriter) write(p []byte) error {
	b.digest.Write(p)
	b.summary.Size += int64(len(p))
	if _, err := b.w.Write(p); err != nil {
		return fmt.Errorf("write a backup: %w", err)
	}
	return nil
}

// add adds an entry, whose key is above all before.
func (b *backupWriter) add(e *Entry) error {
	if err := b.codec.enc.MarshalToBuffer(e, &b.body); err != nil {
		return fmt.Errorf("encode %q for a backup: %w", e.Key, err)
	}
	b.summary.count(e)
	if b.body.Len() < frameSize {
		return nil
	}
	if err := b.end(); err != nil {
		return err
	}
	b.begin(kindEntries)
	return nil
}

func (s *Summary) count(e *Entry) {
	if e.Deleted {
		s.Deleted++
	} else {
		s.Keys++
	}
	if e.Unsettled {
		s.Unsettled++
	}
	s.Owner = max(s.Owner, e.Tag.Owner)
}

// finish writes what is left, and the trailer.
func (b *backupWriter) finish() (Summary, error) {
	if b.body.Len() > 1 {
		if err := b.end(); err != nil {
			return Summary{}, err
		}
	}
	b.digest.Sum(b.summary.Digest[:0])
	b.body.Reset()
	b.body.Write(b.summary.trailer())
	err := b.end()
	return b.summary, err
}

func (s *Summary) trailer() []byte {
	t := []byte{kindTrailer}
	for _, n := range []int64{s.Keys, s.Deleted, s.Unsettled} {
		t = binary.BigEndian.AppendUint64(t, uint64(n))
	}
	return append(t, s.Digest[:]...)
}

// fail ends a stream whose reader is to be told why.
func (b *backupWriter) fail(err error) {
	b.begin(kindFailure)
	text := err.Error()
	b.body.WriteString(text[:min(len(text), 1<<10)])
	_ = b.end() // whoever reads may be gone, and then nobody is left to tell
}
