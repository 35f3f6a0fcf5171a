package snapshot

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"gus/register"
)

// ErrNoBackup says that a file is no backup of gus.
var ErrNoBackup = errors.New("not a backup of gus")

// BackupReader reads a backup, and checks all of it. One goroutine uses it.
type BackupReader struct {
	r       *bufio.Reader
	codec   codec
	digest  hash.Hash
	at      int64  // where the frame begins that is read
	frames  uint64 // read so far
	body    []byte
	last    string // key
	summary Summary
	whole   bool
}

// ReadBackup begins to read a backup: its header. The error wraps ErrNoBackup,
// ErrNewer or ErrDamaged, and says in one line where and what; the caller names the file.
func ReadBackup(r io.Reader) (*BackupReader, error) {
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	b := &BackupReader{r: bufio.NewReaderSize(r, 256<<10), codec: c, digest: sha256.New()}
	if err := b.prelude(); err != nil {
		return nil, err
	}
	body, err := b.frame()
	if err != nil {
		return nil, err
	}
	if body[0] == kindFailure {
		return nil, failure(body)
	}
	if body[0] != kindHeader {
		return nil, b.damaged("it does not begin with a header")
	}
	if b.summary.Origin, err = b.codec.origin(body[1:]); err != nil {
		return nil, b.damaged("its header: %v", err)
	}
	return b, nil
}

// prelude reads the first line.
func (b *BackupReader) prelude() error {
	const most = len(backupMagic) + 5
	line, err := b.r.Peek(most)
	if len(line) < most && err != nil && err != io.EOF {
		return fmt.Errorf("read a backup: %w", err)
	}
	if len(line) == 0 {
		return fmt.Errorf("%w: it is empty", ErrNoBackup)
	}
	text, ok := strings.CutPrefix(string(line), backupMagic)
	if !ok {
		return fmt.Errorf("%w: it begins otherwise", ErrNoBackup)
	}
	text, _, ok = strings.Cut(text, "\n")
	version, err := strconv.Atoi(text)
	switch {
	case !ok || err != nil || version < 1:
		return b.damaged("its first line names no version")
	case version > backupVersion:
		return fmt.Errorf("a backup %w: its format is %d, this version knows %d: use the newer version", ErrNewer, version, backupVersion)
	}
	prelude := line[:len(backupMagic)+len(text)+1]
	b.digest.Write(prelude)
	b.at = int64(len(prelude))
	_, err = b.r.Discard(len(prelude))
	return err
}

// damaged is an ErrDamaged about the frame that is read.
func (b *BackupReader) damaged(format string, args ...any) error {
	return fmt.Errorf("the backup is %w at byte %d: %s: use another one", ErrDamaged, b.at, fmt.Sprintf(format, args...))
}

// cutShort is what an error of reading says of the backup.
func (b *BackupReader) cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return b.damaged("it ends there and is not whole")
	}
	return fmt.Errorf("read a backup: %w", err)
}

// frame reads the next frame and returns its body, which is good until the next one.
func (b *BackupReader) frame() ([]byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(b.r, head[:]); err != nil {
		return nil, b.cutShort(err)
	}
	size, sum := binary.BigEndian.Uint32(head[:4]), binary.BigEndian.Uint32(head[4:])
	if size < 1 || size > maxFrame {
		return nil, b.damaged("a frame of %d bytes", size)
	}
	if uint32(cap(b.body)) < size {
		b.body = make([]byte, size)
	}
	b.body = b.body[:size]
	if _, err := io.ReadFull(b.r, b.body); err != nil {
		return nil, b.cutShort(err)
	}
	if frameSum(b.frames, b.body) != sum {
		return nil, b.damaged("%v", errChecksum)
	}
	if b.body[0] == kindTrailer {
		b.digest.Sum(b.summary.Digest[:0])
	}
	b.digest.Write(head[:])
	b.digest.Write(b.body)
	b.frames++
	return b.body, nil
}

func failure(body []byte) error {
	return fmt.Errorf("the backup was given up: %q", body[1:])
}

// origin decodes a header.
func (c codec) origin(body []byte) (Origin, error) {
	var h header
	if err := c.dec.Unmarshal(body, &h); err != nil {
		return Origin{}, err
	}
	return Origin{Cluster: h.Cluster, Site: h.Site, Program: h.Program, Time: time.UnixMilli(h.Time), Epoch: h.Epoch, Seq: h.Seq, Database: h.Database}, nil
}

// Origin says what the backup is of.
func (b *BackupReader) Origin() Origin { return b.summary.Origin }

// Entries yields all keys, in order, and checks that the backup is whole. It ends with an error
// otherwise. It may be ranged over once.
func (b *BackupReader) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for {
			b.at += int64(frameHead + len(b.body))
			body, err := b.frame()
			if err != nil {
				yield(Entry{}, err)
				return
			}
			switch body[0] {
			case kindEntries:
				more, err := b.entries(body[1:], yield)
				if err != nil {
					yield(Entry{}, err)
				}
				if !more || err != nil {
					return
				}
			case kindTrailer:
				if err := b.end(body); err != nil {
					yield(Entry{}, err)
				}
				return
			case kindFailure:
				yield(Entry{}, failure(body))
				return
			default:
				yield(Entry{}, b.damaged("a frame of no kind that there is"))
				return
			}
		}
	}
}

// entries yields those of a frame.
func (b *BackupReader) entries(body []byte, yield func(Entry, error) bool) (more bool, err error) {
	for len(body) > 0 {
		var e Entry
		if body, err = b.codec.dec.UnmarshalFirst(body, &e); err != nil {
			return false, b.damaged("%v", err)
		}
		if err := b.check(&e); err != nil {
			return false, b.damaged("%v", err)
		}
		b.last = e.Key
		b.summary.count(&e)
		if !yield(e, nil) {
			return false, nil
		}
	}
	return true, nil
}

// check says what is wrong with an entry.
func (b *BackupReader) check(e *Entry) error {
	if err := register.CheckKey(e.Key); err != nil {
		return err
	}
	switch {
	case e.Key <= b.last:
		return fmt.Errorf("the key %q comes after %q", e.Key, b.last)
	case len(e.Value) > register.MaxValue:
		return fmt.Errorf("the value of %q has %d bytes", e.Key, len(e.Value))
	case e.Tag.TS>>63 != 0 || e.Tag.Owner < 1 || e.Tag.Owner > register.MaxVoter:
		return fmt.Errorf("the version of %q is %v", e.Key, e.Tag)
	case e.Deleted && len(e.Value) > 0:
		return fmt.Errorf("%q is deleted and has a value", e.Key)
	}
	return nil
}

// end checks the trailer, and that nothing follows it.
func (b *BackupReader) end(body []byte) error {
	if !bytes.Equal(body, b.summary.trailer()) {
		return b.damaged("what it ends with is not what came before")
	}
	b.at += int64(frameHead + len(body))
	b.summary.Size = b.at
	switch _, err := b.r.ReadByte(); err {
	case io.EOF:
		b.whole = true
		return nil
	case nil:
		return b.damaged("something follows its end")
	default:
		return fmt.Errorf("read a backup: %w", err)
	}
}

// Summary is what the backup comes to, and true once all Entries were read and are good.
func (b *BackupReader) Summary() (Summary, bool) { return b.summary, b.whole }

// VerifyBackup reads the backup in the file at path to its end. progress is told, if it is
// not nil, how many keys were read, after each of them.
func VerifyBackup(path string, progress func(keys int)) (Summary, error) {
	f, err := os.Open(path)
	if err != nil {
		return Summary{}, fmt.Errorf("open a backup: %w", err)
	}
	defer f.Close()
	s, err := verifyBackup(f, progress)
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func verifyBackup(r io.Reader, progress func(keys int)) (Summary, error) {
	b, err := ReadBackup(r)
	if err != nil {
		return Summary{}, err
	}
	n := 0
	for _, err := range b.Entries() {
		if err != nil {
			return b.summary, err
		}
		if n++; progress != nil {
			progress(n)
		}
	}
	return b.summary, nil
}

// GlanceBackup reads the two ends of the backup in the file at path: what it says it is,
// not whether what is in between is good.
func GlanceBackup(path string) (Summary, error) {
	f, err := os.Open(path)
	if err != nil {
		return Summary{}, fmt.Errorf("open a backup: %w", err)
	}
	defer f.Close()
	b, err := ReadBackup(f)
	if err != nil {
		return Summary{}, fmt.Errorf("%s: %w", path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return Summary{}, fmt.Errorf("open a backup: %w", err)
	}
	s := &b.summary
	s.Size = info.Size()
	b.at = s.Size - frameHead - trailerSize
	tail := make([]byte, frameHead+trailerSize)
	if _, err := f.ReadAt(tail, b.at); err != nil || binary.BigEndian.Uint32(tail) != trailerSize || tail[frameHead] != kindTrailer {
		return Summary{}, fmt.Errorf("%s: %w", path, b.damaged("it does not end as a backup does and is not whole"))
	}
	counts := tail[frameHead+1:]
	for i, n := range []*int64{&s.Keys, &s.Deleted, &s.Unsettled} {
		*n = int64(binary.BigEndian.Uint64(counts[8*i:]))
	}
	copy(s.Digest[:], counts[24:])
	return *s, nil
}
