package agent

import (
	"slices"
	"sync"
	"testing"
	"time"

	"gus/register"
)

// counting is a disk that remembers how many records each save had.
type counting struct {
	l     *loop
	mu    sync.Mutex
	saves []int
}

func (c *counting) Save(seq register.Seq, records []register.Record) {
	c.mu.Lock()
	c.saves = append(c.saves, len(records))
	c.mu.Unlock()
	c.l.saved <- saving{seq, nil}
}

func (c *counting) all() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.saves)
}

// What is not urgent goes with the save of a client's write, and does not wait
// for ever for one.
func TestAVisitJoinsASave(t *testing.T) {
	inLoop(t, func(t *testing.T, l *loop, _ *failing, _ <-chan error) {
		disk := &counting{l: l}
		if err := l.visit(t.Context(), func(*register.Replica) { l.store = disk }); err != nil {
			t.Fatal(err)
		}
		op := register.Op(1 << 40)
		write := func(r *register.Replica) {
			op++
			r.Set(op, "joined", []byte("v"), false)
		}
		joined := make(chan error)
		go func() { joined <- l.join(t.Context(), time.Minute, write) }()
		time.Sleep(30 * time.Second)
		if saves := disk.all(); len(saves) > 0 {
			t.Errorf("there were saves of %v records and no write of a client", saves)
		}
		if err := l.trySet(t.Context(), "alone"); err != nil {
			t.Fatal(err)
		}
		if err := <-joined; err != nil {
			t.Fatal(err)
		}
		saves := disk.all()
		if len(saves) == 0 || saves[0] != 2 {
			t.Errorf("there were saves of %v records", saves)
		}
		time.Sleep(10 * time.Second)
		before := len(disk.all())
		if err := l.join(t.Context(), time.Second, write); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if len(disk.all()) == before {
			t.Error("nothing came to be joined, and it was not saved without")
		}
	})
}
