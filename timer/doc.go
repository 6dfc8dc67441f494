// Package timer is the durable timer store: it holds entries until they are due, up to any time ahead, and hands
// them out at the millisecond. It knows nothing of what an entry means.
//
//	Put, Cancel, Settle -> intake log (group commit) --seal--> run (sorted by due) --> wheel (what is near, RAM) -> sink
//	                             \-------- due soon, once durable: straight into the wheel ------^
//
// # Promises
//
//   - An entry whose Put was acknowledged fires until it is settled: after a killed process, after a power loss
//     (SyncAlways), beside damaged records, on a disk that was full or failed for a while.
//   - Nothing fires before its due time by Options.Now, whatever that clock does, and nothing fires twice between
//     an Open and a Close.
//   - A flow fires in (due, LSN) order over all its entries that are durable at that moment.
//   - A settled entry does not come back after a killed process once its settle is written, at once while the disk works
//     (SettleThen tells), nor after a power loss once that is synced: within 50 ms (SyncAlways).
//   - An entry is either fired or cancelled. Cancel answers once that is durable: what was cancelled does not fire, nor
//     after a power loss (SyncAlways).
//   - RAM does not grow with the number of entries in runs, but for one or two bits each. Bodies are read ahead within a budget. A flow has at most
//     Options.Window entries in the wheel; unsealed segments have their index in RAM, and 12 bytes for each key.
//
// # Goroutines and locks
//
// The writer owns the open segment: it swaps the open group, writes it, has the syncer sync it, arms its puts, answers them. While a sync
// goes on, puts gather in the next group; settles do not wait, they and what has gathered are written at once. The janitor owns
// MANIFEST, seals, makes the next segment ahead, unlinks, punches. The merger writes one run from several; the janitor hands it the file id
// and installs what it made. The loader reads run indexes. The firing goroutine calls the sink, and notices when the wall clock is set. Another
// looks at the free space and decides what Put takes. Scans run on their callers' goroutines. Store.mu
// guards flows, wheel and the state of files in RAM, and is never held while the disk is used; intake.mu guards the open
// group. Neither is taken while the other is held.
//
// # Invariants of the wheel
//
// Keys are (due, LSN). Every flow has a resume point. Between two holds of Store.mu, for every flow:
//
//  1. A pending entry before the resume point is armed (in the wheel) or fired.
//  2. An armed entry is before the resume point, except those that the loader's present pass brought and did not pass yet.
//  3. An entry in an unsealed segment that is neither armed, fired nor done is in far, and far has nothing else and
//     nothing before the resume point. An entry in a run that is neither armed nor fired is in the run only.
//  4. armed + fired <= Options.Window.
//
// So the first armed entry is the first of all that are unfired, and firing it keeps the order. A fresh put before the resume point is
// armed; if that exceeds the window the last armed entry is taken out and the resume point moves back to it. A fresh put
// at or past the resume point goes to far. The loader walks through all run indexes in key order, from the
// lowest resume point of the flows it serves, and merges far in; a flow whose window is full gets its resume
// point where it had to stop, the others move theirs along, at last to the horizon. Entries that are done or fired are
// left out. A flow is served when half its window is free. When a run takes the place of its segment, or of the runs it was merged from,
// the loader's pass is discarded: it began without that run.
//
// # Looking inside
//
// List, Get, Find, Fullest and Export take a view: under one hold of Store.mu a reference to each unsealed segment and each run that matters. These hold
// every pending entry once (while a run takes the place of its segment, the segment counts), and stay readable while they are sealed, merged,
// dropped or punched. All reading is done without the lock; what was met is then checked against the bitmaps, some at a time. So a row
// was pending at some moment of the call, and a list goes on behind a key, never behind a place in a file: between two pages
// anything may happen to the files. Only a settle that came within the few milliseconds in which a merge is installed may be seen late by one
// call. Find looks for the hash of a key in the list of each segment and the key table of each run, and believes only the
// records. Counts reads the counters that puts, settles and cancels keep. The stream of Export is described in portable.go.
//
// # The disk
//
// All integers are little endian; all checksums are CRC-32C. What a file's checksums start from, its seed, is
// the CRC-32C of its id and its epoch (8 bytes each); the epoch is a random number, so nothing from an earlier life of
// a recycled file, and nothing inside a body, passes for a record. File ids are never used twice. Assumed of the disk: writing a sector
// again leaves the bytes in it that do not change intact, and what fsync reported stays. Format version: 1.
//
//	LOCK                   held with flock while a Store is open
//	RESERVE                nothing but space, which sealing may use on a full disk
//	MANIFEST               which files count
//	seg-<id, 16 hex>       intake segment
//	run-<id, 16 hex>       sealed run
//	free-<id, 16 hex>      retired segment, to be recycled; unlinked by Open
//	*.broken               evidence: something in it was damaged; never read again, delete at will
//
// Every file but LOCK and RESERVE begins with a head of 64 bytes:
//
//	 0  8  magic: "DGSEGMT\n", "DGRUN01\n", "DGMANIF\n"
//	 8  4  checksum of bytes 12 to 63, seed 0
//	12  4  format version
//	16  8  file id (MANIFEST: 0)
//	24  8  epoch
//	32 32  zero
//
// A segment has its full size from the start, zeros or the remains of an earlier life; records begin at 4096, each at a
// multiple of 8, padded with zeros. A record:
//
//	 0  4  checksum of bytes 4 to its end
//	 4  4  length, without padding
//	 8  1  kind: 1 group, 2 put, 3 settle, 4 cancel
//	 9  1  zero
//	10  2  put: lane
//	12  2  put: length of the broker name
//	14  2  put: length of the topic name
//	16  8  LSN; group: that of the first record in it
//	24  8  put: due, Unix ms; group: the LSN up to which everything was synced when it was written
//	32  2  put: length of the business keys; group: 4 bytes, the bytes of records that follow in it
//	34  2  put: zero
//	36  2  put: length of the unique key
//	38  2  low half of the checksum of bytes 4 to 37
//	40     put: broker, topic, unique key, business keys (separated by blanks), body;
//	       settle, cancel: 16 bytes (LSN, due) for each entry
//
// What is written together is a group: a group record, then its records. Bytes 38 and 39 make the length of a record with a damaged
// body trustworthy, so that a scan goes on right behind it.
//
// A run: head, put records as above with the seed of the run in (due, LSN) order, zeros up to a multiple of 4096, index pages, key
// table, flow table, footer. An index page is 4096 bytes: checksum of the rest (4), page number (4), number of entries (4), zero (20), up to
// 127 entries, zeros. An index entry:
//
//	 0  8  due
//	 8  8  LSN
//	16  4  flow: number in the flow table
//	20  4  length of the record
//	24  6  offset of the record
//	30  2  lane
//
// The key table is made of pages like those of the index, but bit 31 of the page number is set, and there are up to 338 lines of 12 bytes:
// xxHash64 of the topic, a zero byte and a key (8), number of the entry in the index (4); one for the unique key of an entry and one for each business key, sorted by hash, then
// number. A hit counts only if the record has that key.
//
// The flow table: number of flows (4), number of runs that this one was merged from (4), their ids (8 each), then for each flow: length of broker (2), of topic (2), number of hours (4), zero (4), broker,
// topic, and for each hour of due times, ascending: Unix hour (8), number of entries (4). The footer, the last 144 bytes:
//
//	 0  8  magic "DGRUNEND"
//	 8  4  checksum of bytes 12 to 143, seed 0
//	12  4  format version
//	16  8  file id               80  8  offset of the key table
//	24  8  epoch                 88  8  length of the key table
//	32  8  number of entries     96  8  lowest LSN of its segments
//	40  8  offset of the index  104  8  highest
//	48  8  number of pages      112  8  id of its first segment
//	56  8  offset of flow table 120  8  of its last
//	64  8  its length           128  8  earliest due
//	72  8  its checksum         136  8  latest due
//
// MANIFEST: head, then edits, each synced before anything relies on it: checksum of the rest (4), length of the operations (4), number of
// the edit from 1 (8), operations. An operation is a byte and an 8-byte number, and more for some:
//
//	1  next file id
//	2  floor: an LSN; no number up to it is given out again
//	3  segment added: id; epoch (8), size (8)
//	4  segment dropped: id
//	5  segment cut: id; where its records end (8)
//	6  run added: id; epoch (8), number of entries (8)
//	7  run dropped: id
//	8  entries done in a run: id; count (4); then word number (4) and 64-bit word of the done bitmap, by ordinal, to be or-ed in
//	9  the same for those of them that were cancelled
//	10 identity of the store: a random number
//	11 damaged: id of a segment or run that is kept as .broken when it goes
//
// It is rewritten as one edit (MANIFEST.tmp, fsync, rename, fsync of the folder) when it grows and on every Open. A sealed segment is dropped by the
// edit that adds its run and carries all bitmap changes over: then no settle record in it is needed any more.
//
// # Space
//
// The janitor gives the space of done entries back by punching holes into the records of a run: every longest stretch of done entries in
// which 256 KiB or more are still on the disk, from the first page boundary in it to the last. It looks every 2 s, and does it once 2 MiB came
// together in all runs. First an edit makes their bits durable, so a record that was punched is done in MANIFEST, whatever crashes; nobody reads
// it any more. A run that is all done is dropped and unlinked. Where the file system cannot punch, the rest is left to merges.
//
// A merge copies what is pending in several runs into one, in key order: it notes the done bitmaps, reads the indexes to know how much there is,
// then copies records and key tables. In RAM it has 4 bytes for each entry that it copies and one and a half bits for each other one. The janitor
// installs the result: what was done since the notes is marked in the new run, entries in the wheel get their new places, and one edit drops the
// sources and adds the run with its bits. Readers of the sources finish on the old files. A
// damaged record is copied as damaged: it fires, Load says so, and its source is kept as .broken. A run with a damaged page is not merged.
// A merge writes Options.MergeBytesPerSec at most, a quarter of that while puts wait or firing lags, and syncs every 8 MiB.
//
// Every 2 s the janitor looks which runs to merge, one merge at a time:
//
//   - More than Options.MaxRuns: the 8 with the fewest bytes alive. So files and the loader's buffers are bounded; but no merge makes a run of more
//     than 1 GiB or 4 Mi entries, so from 128 such runs on their number grows by one for each.
//   - A quarter of MaxRuns small ones (alive: less than a sixteenth of a segment): those.
//   - All runs together occupy more than 1.2 of what is alive in them, because entries were cancelled or stay here and there where no stretch is
//     long enough to punch: those with the largest dead part, until it is 1.15. Only runs of which 45 % are dead, or 25 % while all merges wrote
//     less than 40 % of what was sealed; and only if less than 1/64 of them was done in the last 30 s, since a run that is being
//     cancelled or delivered is cheaper to merge afterwards.
//
// What that comes to, for records of r bytes (a header of 40, names, keys and body), per byte accepted:
//
//	log                                                  1 + 16/r for its settle, + 16/r or 56/r for a cancel (in a crowd or alone)
//	run, with 32.3 for its index line and 12.1 per key   1 + 44.4/r
//	merges by number                                     0 up to MaxRuns segments (128: 8 GiB), then 1 + 44.4/r for each factor of 8
//	merges by dead part, half cancelled when sealed      (2 - 1.15) / 2 * (1 + 44.4/r)
//
// For r = 350 that is 2.17 written, and 2.67 if half is cancelled later, or 2.5 with the cancels counted as accepted (56 bytes each); for r = 1000, 2.06
// and 2.52. What is cancelled before its segment is sealed costs nothing but its record. On the disk are at most 1.2 of what is alive in runs, but for runs that are a quarter
// dead at most or that do not rest yet, and 4 segments; with few cancels: (1 + 44.4/r) of what is pending and less than 256 KiB per run.
//
// # Crashes
//
//	when                                     after it
//	before the sync of a put                 it may appear; nobody was told that it is stored
//	after it, before the answer              it is there; the client may send it again
//	run synced, not in MANIFEST              the run is deleted, the segment replayed
//	in MANIFEST, segment not yet recycled    the segment is unlinked
//	fired, delivered, settle not written     fires again
//	settle written, not synced               fires again after a power loss only
//	settle synced, segment sealed            done: the bitmap in MANIFEST has it
//	cancel written, not synced               fires after a power loss only; nobody was told that it is cancelled
//	cancel synced, before the answer         cancelled; who asks again is told so
//	segment made, not in MANIFEST            unlinked: nothing was written to it
//	run dropped from MANIFEST, not unlinked  unlinked
//	merged run being written, or synced      deleted: MANIFEST names its sources
//	installed in RAM, not in MANIFEST        the same; settles that went to it are in the log
//	in MANIFEST, sources not unlinked        they are unlinked
//	sources unlinked, last edit damaged      the merged run is adopted in place of those that are named and gone
//	bits in MANIFEST, run not punched        punched when the next round pays
//	run punched, hole not on the disk yet    as before it: nobody reads there
//	MANIFEST.tmp written, not renamed        unlinked; the old MANIFEST counts
//	RESERVE made or given up, not synced     it is there or not; what it occupies counts, the rest is made again
//	Open had no room for MANIFEST            nothing was written or unlinked but blank segments and RESERVE; the next Open begins anew
//
// A damaged place in a segment is a torn tail if nothing proves that it was ever synced, and cuts the segment there. It is rot, skipped, counted and
// kept as .broken, if a later group says that it was synced, or if it lies before the end that MANIFEST knows. Open
// syncs the segments that it replays and notes their ends, so that the next Open does not judge them by groups that
// came after. Close notes the end of the open segment. A run that MANIFEST does not name is deleted unless MANIFEST names its segment, or one of the runs it was merged from, and that is gone:
// then MANIFEST lost its last edit, and the run is adopted. Without a readable MANIFEST every run and segment counts, but a merged run whose
// sources are all there does not, nor what is there of them if one is gone: no merge begins before the sources of the last one are unlinked. Settled
// and cancelled entries of runs may come back then, but for those that lie in a hole and have lost their bytes to it.
//
// # Damage
//
// Whatever is damaged, what is not is delivered. Every loss is logged once, with file and offset, counted (Stats.Corrupt, Stats.Lost), and its file
// is kept as .broken when nothing in it is pending any more; until then it is not punched.
//
//	record of a due entry     read twice; then the entry counts as settled, and Load says ErrCorrupt
//	record, when sealed       the entry is left out of the run
//	index page of a run       built anew from the records between its neighbours each time it is read; the run is written anew
//	both                      the entry is lost: it counts as done, by the flow and hour that the flow table counts and no line has
//	key page                  found by merges; the run is written anew, with keys from its records
//	head, footer, flow table  what is pending and sound is copied to a new run at Open; checksums start from what MANIFEST, head and footer say,
//	                          the index is found by its checksums, flows come from the records. A run that is cut off likewise
//	head of a segment         MANIFEST has what is needed
//	segment cut off           MANIFEST has its size: it is rot
//	MANIFEST                  rebuilt from the files; bitmaps, drops and ends of segments from the edits that are sound
//	a file's name             its head says which it is: it is used as that one and gets its name, or is set aside if that is there too
//	a file missing            logged, with the number of pending entries if it is a run
//
// The records of damaged pages are numbered from the front and from the back, records whose fixed part is sound count even if the rest is not. So the
// numbers, and with them the done bits, are exact unless records cannot even be counted at two places of one row of damaged pages, or at one and the
// file is cut off; then those between or behind them fire again. Read errors of the intake log, of bodies and of what both an index page and its
// records would tell are no damage: they are retried. A damaged file becomes .broken when MANIFEST does not name it any more. Where the disk is too full to copy a
// damaged run, it stays as it is and its entries wait for the next Open.
//
// A file or an operation of a higher format version is no damage: Open refuses.
//
// # Failing disks
//
// After a failed write or fsync of the log every put that is not durable gets its error, Put refuses (ErrFull when the disk is full, else
// ErrFailed), and the segment is given up: MANIFEST notes where the acknowledged part ends, and it is sealed like a full
// one, which reads and checks all that is pending in it. The log goes on in a fresh segment once one could be made and
// MANIFEST could be written; that is retried with growing pauses. Settles wait in RAM meanwhile, nobody waits for them. Cancels that
// wait get the error; their entries do not fire before the next Open, and who asks again has the record written again. After a failed write of
// MANIFEST nothing is known about it; it is rewritten before anything else happens. Firing goes on.
//
// # Full disks
//
// What a seal may need is 1.25 times the segment (more where entries are small) and up to 1 MiB. Put refuses (ErrFull) while what is free on
// the disk does not cover a seal of every segment that is not sealed, the open one as if it were full, the next segment if it is not there, and RESERVE
// if it is not there: the min mark. Entries due further ahead than Options.FarAfter are refused 4 segments earlier, at the far mark. Blank segments
// count as free. Options.MinFree and FarFree raise the marks. After a refusal a quarter of a segment more must be free. The marks are looked at
// every 200 ms and whenever the janitor has done something.
//
// A new segment and a merge leave alone what is kept for seals. RESERVE has the size of one seal of a full segment, really taken from
// the disk. When a seal, or a segment without which the writer cannot go on, finds the disk full, retired files that nobody reads any more
// go first, then blank segments, then RESERVE. For MANIFEST the last 1 MiB of RESERVE goes before all of these (as much as a segment has, if that is
// less). RESERVE is made whole again once there is room. So settles, cancels and seals go on where Put does not: settles fill
// the open segment and the next one, and a full segment is sealed, which makes it the next blank one. Where even RESERVE is used up by
// others, settles wait in RAM. On a disk whose free space cannot be told, ENOSPC alone decides.
//
// Open does the same for MANIFEST. If there is still no room for it or for an open segment, Put refuses and settles wait, while
// what is pending fires; the janitor writes MANIFEST before it writes or unlinks anything else, and an open segment comes like any next one.
//
// # The clock
//
// Due times are wall clock. What is due at a step forward fires then; after a step back nothing fires again, and what has not fired waits
// until the clock is there again. A step of a second or more against Options.Monotonic, by somebody who sets the clock or by a machine that
// slept, is counted and logged, one line a minute.
package timer
