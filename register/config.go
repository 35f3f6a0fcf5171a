package register

// Config is what a voter, or an observer, must know. The zero values of
// ReadQuorum, WriteQuorum, Saved, Keys and Ask are good ones.
type Config struct {
	Self        Voter   // 0: an observer (PROTOCOL.md section 5)
	Voters      []Voter // all of them, Self included; 1 to MaxVoters
	ReadQuorum  int     // Q_R, the voter itself counted; 0: see Quorums
	WriteQuorum int     // Q_W, likewise
	Boot        uint64  // durably raised at each start before New; not 0
	Saved       Seq     // the highest Seq ever used by this voter
	Keys        int     // about how many keys the records have, so that a start makes room once; 0: not known
	Ask         bool    // others are asked before it votes whether it has forgotten anything (PROTOCOL.md section 7)
}

// Quorums returns the quorum sizes for n voters: the read quorum is a
// majority, the write quorum the smallest with which no write has to wait for
// more than it (PROTOCOL.md section 1).
func Quorums(n int) (read, write int) {
	read = n/2 + 1
	for write = read; !noWait(n, read, write); write++ {
	}
	return read, write
}

// noWait is the condition of PROTOCOL.md section 1 under which a contended
// write never has to wait for more than a write quorum.
func noWait(n, read, write int) bool { return read+write+min(read, write) > 2*n-2 }

// withDefaults returns c with its quorums filled in, or says what is wrong.
func (c Config) withDefaults() (Config, error) {
	n := len(c.Voters)
	if n < 1 || n > MaxVoters {
		return c, invalid("%d voters: there must be 1 to %d", n, MaxVoters)
	}
	var all Set
	for _, v := range c.Voters {
		if v < 1 || v > MaxVoter {
			return c, invalid("voter number %d: must be 1 to %d", v, MaxVoter)
		}
		if all.Has(v) {
			return c, invalid("voter number %d is given twice", v)
		}
		all = all.With(v)
	}
	if c.Self != 0 && !all.Has(c.Self) {
		return c, invalid("this voter's number %d is not among the voters", c.Self)
	}
	read, write := Quorums(n)
	if c.ReadQuorum == 0 {
		c.ReadQuorum = read
	}
	if c.WriteQuorum == 0 {
		c.WriteQuorum = write
	}
	for _, q := range [2]int{c.ReadQuorum, c.WriteQuorum} {
		if q <= n/2 || q > n {
			return c, invalid("a quorum of %d of %d voters: must be a majority, and no more than all", q, n)
		}
	}
	if c.Boot == 0 {
		return c, invalid("boot is 0: it must be raised at each start")
	}
	return c, nil
}

// Validate says what is wrong with c, if anything.
func (c Config) Validate() error {
	_, err := c.withDefaults()
	return err
}
