package timer

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"sync"
	"time"
)

const busyPause = time.Millisecond

// Imported is what an Import did.
type Imported struct {
	Read    int64 // entries in the stream, up to its end or to what is wrong with it
	Taken   int64 // put, and durable
	Skipped int64 // pending already
}

// Import puts the entries of a portable stream, with due time, flow, lane, keys and body. An entry whose topic, unique key and due time are those of an
// entry that was pending when the import began is skipped, each of these once; without a unique key all else must be the same. So an import that was
// interrupted may be run again, and one that is repeated changes nothing while nothing fires. RAM: some MiB, and about 50 bytes for each
// pending entry in the fullest millisecond. It waits while too much is waiting to be written.
//
// It reads the disk and may be called from any goroutine. After an error what was taken stays, as Imported says. Errors: ErrDamagedExport, ErrExportVersion; what r
// returned; the error of ctx; and those of Put but for ErrBusy.
func (s *Store) Import(ctx context.Context, r io.Reader) (Imported, error) {
	im := importer{s: s, pending: newPendingWindow(s), freed: make(chan struct{}, 1)}
	err := im.run(ctx, r)
	im.waiting.Wait()
	im.mu.Lock()
	defer im.mu.Unlock()
	if err == nil {
		err = im.failed
	}
	if err != nil {
		err = fmt.Errorf("%w; %d entries were taken, %d more were pending already", err, im.did.Taken, im.did.Skipped)
	}
	return im.did, err
}

// importer puts the entries of a stream.
type importer struct {
	s       *Store
	pending *pendingWindow
	waiting sync.WaitGroup // for the answers to puts
	freed   chan struct{}  // capacity 1: there was an answer

	mu     sync.Mutex
	did    Imported
	failed error // of a put
}

func (im *importer) run(ctx context.Context, r io.Reader) error {
	in, err := newPortReader(r)
	if err != nil {
		return err
	}
	for {
		e, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		was, err := im.pending.take(&e)
		if err != nil {
			return err
		}
		if err := im.note(was); err != nil {
			return err
		}
		if was {
			continue
		}
		if err := im.put(ctx, &e); err != nil {
			return fmt.Errorf("entry %d of the export (topic %s, key %s): %w", in.n-1, e.Flow.Topic, e.Key, err)
		}
	}
}

// note counts an entry that was read, and returns why a put before it failed, if one did.
func (im *importer) note(skipped bool) error {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.did.Read++
	if skipped {
		im.did.Skipped++
	}
	return im.failed
}

// put puts an entry and does not wait until it is durable.
func (im *importer) put(ctx context.Context, e *Entry) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		im.waiting.Add(1)
		_, err := im.s.Put(e, im.answer)
		if err == nil {
			return nil
		}
		im.waiting.Done()
		if !errors.Is(err, ErrBusy) {
			return err
		}
		select {
		case <-im.freed:
		case <-time.After(busyPause):
		case <-ctx.Done():
		}
	}
}

// answer is told how a put ended, on the writer's goroutine.
func (im *importer) answer(err error) {
	im.mu.Lock()
	if err == nil {
		im.did.Taken++
	} else if im.failed == nil {
		im.failed = err
	}
	im.mu.Unlock()
	poke(im.freed)
	im.waiting.Done()
}

// pendingWindow knows what was pending when it was made, a stretch of due times at a time.
type pendingWindow struct {
	s        *Store
	highest  LSN // what has a higher number came later
	seeds    [2]maphash.Seed
	from, to int64 // due times: from..to, to included; nothing before it was asked for
	have     map[entryID]int
}

// entryID stands for what makes two entries the same.
type entryID struct {
	due  int64
	hash [2]uint64
}

func newPendingWindow(s *Store) *pendingWindow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pendingWindow{s: s, highest: s.admitted, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, from: 1}
}

// take says whether an entry like e was pending, and takes that one out.
func (p *pendingWindow) take(e *Entry) (bool, error) {
	if e.Due < p.from || e.Due > p.to {
		if err := p.read(e.Due); err != nil {
			return false, err
		}
	}
	id := p.id(e)
	if p.have[id] == 0 {
		return false, nil
	}
	p.have[id]--
	return true, nil
}

func (p *pendingWindow) id(e *Entry) entryID {
	id := entryID{due: e.Due}
	for i, seed := range p.seeds {
		var h maphash.Hash
		h.SetSeed(seed)
		field := func(s string) {
			h.WriteString(s)
			h.WriteByte(0)
		}
		field(e.Flow.Topic)
		field(e.Key)
		if e.Key == "" {
			field(e.Flow.Broker)
			field(e.Keys)
			h.WriteByte(byte(e.Lane))
			h.WriteByte(byte(e.Lane >> 8))
			h.Write(e.Body)
		}
		id.hash[i] = h.Sum64()
	}
	return id
}

// read notes what is pending from due on: some, and all that is due in the last of these milliseconds.
func (p *pendingWindow) read(due int64) error {
	p.have = map[entryID]int{}
	q := scanQuery{rows: exportRows, bytes: exportBytes, highest: p.highest}
	if due > math.MinInt64 {
		q.after = Cursor{Due: due - 1, LSN: maxLSN}
	}
	n, last := 0, due
	for {
		more, err := p.readPage(&q, func(e *Entry) bool {
			if n >= p.s.o.importWindow && e.Due > last {
				return false
			}
			n, last = n+1, e.Due
			p.have[p.id(e)]++
			return true
		})
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	p.from, p.to = due, last
	if n < p.s.o.importWindow {
		p.to = math.MaxInt64
	}
	return nil
}

// readPage hands the entries of a part of a scan to add, until that returns false. more: there may be more.
func (p *pendingWindow) readPage(q *scanQuery, add func(*Entry) bool) (more bool, err error) {
	sc, err := p.s.scan(*q)
	if err != nil {
		return false, err
	}
	defer sc.close()
	for _, l := range sc.load() {
		switch {
		case errors.Is(l.err, ErrNotPending) || errors.Is(l.err, ErrCorrupt): // a damaged one is better had twice
			continue
		case l.err != nil:
			return false, p.s.failed("compare with what is pending", l.err)
		}
		e := l.rec.entry()
		if !add(&e) {
			return false, nil
		}
	}
	q.after = sc.next
	return sc.more, nil
}
