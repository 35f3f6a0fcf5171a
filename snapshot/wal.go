package snapshot

import "encoding/binary"

// The format of SQLite's write-ahead log (sqlite.org/walformat.html): a header,
// then frames, each with a page. Numbers have their highest byte first. The
// sums go on from each frame to the next. Frames of an earlier use of the file,
// behind the last valid one, have other salts.
const (
	walHeaderSize   = 32
	walFrameHeader  = 24
	walMagic        = 0x377f0682 // sums of words with the lowest byte first; 1 more: with the highest
	walVersion      = 3007000
	smallestWALPage = 512
	largestWALPage  = 1 << 16
)

// wal is where one is in such a log.
type wal struct {
	order        binary.ByteOrder // of the words that are summed
	page         int
	salt1, salt2 uint32
	sum1, sum2   uint32 // up to here
}

// readWALHeader returns the state after the header.
func readWALHeader(data []byte) (w wal, ok bool) {
	word := func(i int) uint32 { return binary.BigEndian.Uint32(data[4*i:]) }
	w = wal{order: binary.LittleEndian, page: int(word(2)), salt1: word(4), salt2: word(5)}
	if word(0) == walMagic+1 {
		w.order = binary.BigEndian
	} else if word(0) != walMagic {
		return w, false
	}
	if word(1) != walVersion || w.page < smallestWALPage || w.page > largestWALPage {
		return w, false
	}
	w.add(data[:24])
	return w, w.sum1 == word(6) && w.sum2 == word(7)
}

// add adds data, in whole pairs of words, to the sums.
func (w *wal) add(data []byte) {
	s1, s2 := w.sum1, w.sum2
	if w.order == binary.ByteOrder(binary.LittleEndian) { // nearly always, and then fast
		for ; len(data) >= 8; data = data[8:] {
			s1 += binary.LittleEndian.Uint32(data) + s2
			s2 += binary.LittleEndian.Uint32(data[4:]) + s1
		}
	}
	for ; len(data) >= 8; data = data[8:] {
		s1 += w.order.Uint32(data) + s2
		s2 += w.order.Uint32(data[4:]) + s1
	}
	w.sum1, w.sum2 = s1, s2
}

func (w *wal) frameSize() int { return walFrameHeader + w.page }

// follows says whether frame is the valid next one, and goes on to it.
func (w *wal) follows(frame []byte) bool {
	w.add(frame[:8])
	w.add(frame[walFrameHeader:])
	word := func(i int) uint32 { return binary.BigEndian.Uint32(frame[4*i:]) }
	return word(2) == w.salt1 && word(3) == w.salt2 && word(4) == w.sum1 && word(5) == w.sum2
}

// isCommit says whether frame ends a transaction of this use of the file. One
// wrong salt is forgiven: it may be the wrong bit.
func (w *wal) isCommit(frame []byte) bool {
	word := func(i int) uint32 { return binary.BigEndian.Uint32(frame[4*i:]) }
	return word(1) != 0 && (word(2) == w.salt1 || word(3) == w.salt2)
}
