package register

// Store keeps records. It is declared here by its caller; snapshot.Store is
// the real one.
type Store interface {
	// Save begins to save records under seq and returns without waiting for
	// the disk. Exactly one call of Replica.Saved or Replica.SaveFailed for
	// seq, by the goroutine that owns the replica, must follow; until then
	// there is no other Save. The records and what they point to do not
	// change any more.
	Save(seq Seq, records []Record)
}

// Transport carries messages to other voters. quic.Endpoint is the real one.
type Transport interface {
	// Send queues m for each voter in to, and never blocks: where a queue is
	// full or nobody is connected, it drops m. Messages may arrive late, more
	// than once, in any order, or not at all.
	Send(to Set, m Message)
}

// Drive performs what r wants done: it begins to save what must be saved,
// sends what may be said, and reports what operations came to. Whoever owns r
// calls it after each turn of inputs. It starts no goroutine and does not wait.
func Drive(r *Replica, s Store, t Transport, report func(Result)) {
	rd := r.Ready()
	if len(rd.Records) > 0 {
		s.Save(rd.Seq, rd.Records)
	}
	for _, e := range rd.Messages {
		t.Send(e.To, e.Message)
	}
	for _, res := range rd.Results {
		report(res)
	}
}
