package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// checkTime bounds SQLite's quick check of the records and the log at a start: some five million keys.
const checkTime = 2 * time.Second

// wholeCheckTime bounds its check of all else: of what superseded versions take, which may be
// most of the file, a start reads nothing.
const wholeCheckTime = 100 * time.Millisecond

// check lets SQLite look at the structure of pages, within bounds of time: at those of the records
// and of the log, and then at all. What rows hold is for their sums to tell, and whether rows are missing
// for what their partitions come to.
func (s *Store) check(tx *sql.Tx) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.checkTime)
	defer cancel()
	for _, query := range []string{"PRAGMA quick_check('records')", "PRAGMA quick_check('log')"} {
		if err := s.quickCheck(ctx, tx, query); ctx.Err() != nil {
			s.log.Warn("the database is large and was not checked to its end", "path", s.path, "after", s.opts.checkTime)
			return nil
		} else if err != nil {
			return err
		}
	}
	ctx, cancel = context.WithTimeout(context.Background(), wholeCheckTime)
	defer cancel()
	if err := s.quickCheck(ctx, tx, "PRAGMA quick_check(1)"); ctx.Err() == nil {
		return err
	}
	return nil
}

func (s *Store) quickCheck(ctx context.Context, tx *sql.Tx, query string) error {
	var says string
	err := tx.QueryRowContext(ctx, query).Scan(&says)
	if err != nil {
		return incomplete(s.path, err)
	}
	if says != "ok" {
		return damaged(s.path, "%s", strings.ReplaceAll(strings.TrimPrefix(says, "*** in database main ***\n"), "\n", ", "))
	}
	return nil
}

// checkHeader refuses a database file whose header has a wrong bit where SQLite
// would take the file for another kind of its own, such as one in UTF-16 or one
// that it must not write. It opens the file, so SQLite must not have it open.
func checkHeader(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	defer f.Close()
	h := make([]byte, 100)
	if _, err := io.ReadFull(f, h); err != nil || !bytes.HasPrefix(h, []byte("SQLite format 3\x00")) {
		return nil // SQLite has words for it
	}
	versions := h[18:20] // of the formats to be written and to be read: 1 until the first start sets 2
	formats := append(h[44:48:48], h[56:60]...)
	if versions[0] != versions[1] || versions[0] < 1 || versions[0] > 2 ||
		!bytes.Equal(h[20:24], []byte{0, 64, 32, 32}) || !bytes.Equal(formats, []byte{0, 0, 0, 4, 0, 0, 0, 1}) {
		return damaged(path, "its header (page 1) is not one of a database of gus")
	}
	return nil
}

// checkWAL refuses a write-ahead log of SQLite in which saves that were durable
// can no longer be read. SQLite takes the first wrong bit for the end, as a
// power cut in a commit leaves it, and would drop without a word what follows.
// But a commit begins only once the one before is synced: a power cut can spoil
// the last one alone. It opens the file, so SQLite must not have it open.
func checkWAL(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the log of the database: %w", err)
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	header := make([]byte, walHeaderSize)
	if _, err := io.ReadFull(in, header); err != nil || bytes.Count(header, []byte{0}) == walHeaderSize {
		return nil // nothing was synced
	}
	w, ok := readWALHeader(header)
	if !ok {
		return damaged(path, "its header is wrong")
	}
	good, frames, lost := true, 0, 0
	for frame := make([]byte, w.frameSize()); ; {
		if _, err := io.ReadFull(in, frame); err != nil {
			break // the end; where it cannot be read, SQLite will say so
		}
		if good = good && w.follows(frame); good {
			frames++
		} else if w.isCommit(frame) {
			lost++
		}
	}
	if lost > 1 {
		return damaged(path, "its frame %d is wrong, and with it %d commits are lost", frames+1, lost)
	}
	return nil
}
