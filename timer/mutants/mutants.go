package main

// mutants has one entry for each step that durability rests on.
var mutants = []mutant{
	// Syncs.
	{
		name: "sync of a put", file: "writer.go",
		old: "		w.ended <- f.Sync(true)\n",
		new: "		_ = f\n		w.ended <- nil\n",
	},
	{
		name: "sync of a full segment", file: "writer.go",
		old: "	if err := w.flush(); err != nil {\n		return err\n	}\n	next, err",
		new: "	w.written = w.synced\n	next, err",
	},
	{
		name: "sync of a new segment", file: "janitor.go",
		old: "		err = f.Sync(false)\n	}\n	if err == nil {\n		err = s.o.FS.SyncDir(s.o.Dir)",
		new: "		err = nil\n	}\n	if err == nil {\n		err = s.o.FS.SyncDir(s.o.Dir)",
	},
	{
		name: "folder sync of a new segment", file: "janitor.go",
		old: "		err = s.o.FS.SyncDir(s.o.Dir)",
		new: "		err = nil",
	},
	{
		name: "sync of a run", file: "runwriter.go",
		old: "if err := r.f.Sync(false); err != nil {",
		new: "if err := error(nil); err != nil {",
	},
	{
		name: "folder sync of a run", file: "runwriter.go",
		old: "return w.s.o.FS.SyncDir(w.s.o.Dir)",
		new: "return nil",
	},
	{
		name: "sync of a MANIFEST edit", file: "manifest.go",
		old: "if err := m.f.Sync(true); err != nil {",
		new: "if err := error(nil); err != nil {",
	},
	{
		name: "sync of a new MANIFEST", file: "manifest.go",
		old: "if err := f.Sync(false); err != nil {",
		new: "if err := error(nil); err != nil {",
	},
	{
		name: "rename of a new MANIFEST", file: "manifest.go",
		old: "if err := m.fs.Rename(tmp, path); err != nil {",
		new: "if err := error(nil); err != nil {",
	},
	{
		name: "folder sync of a new MANIFEST", file: "manifest.go",
		old: "if err := m.fs.SyncDir(m.dir); err != nil {",
		new: "if err := error(nil); err != nil {",
	},
	{
		name: "sync of a replayed segment", file: "replay.go",
		old: "		err = f.Sync(false)\n	}\n	if err != nil {\n		f.Close()",
		new: "		err = nil\n	}\n	if err != nil {\n		f.Close()",
	},

	// Checksums.
	{
		name: "checksum of a record", file: "record.go",
		old: "if length == 0 || le.Uint32(b) != checksum(seed, b[4:length]) {",
		new: "if length == 0 {",
	},
	{
		name: "checksum of a MANIFEST edit", file: "manifest.go",
		old: "seq != 0 && le.Uint64(b[8:]) != seq ||\n		le.Uint32(b) != checksum(seed, b[4:n]) {",
		new: "seq != 0 && le.Uint64(b[8:]) != seq {",
	},
	{
		name: "seed of checksums", file: "datafile.go",
		old: "seed: seedOf(id, epoch)",
		new: "seed: 0",
	},

	// Order of steps.
	{
		name: "answer before the sync", file: "writer.go",
		old: "	w.ready, w.spare, w.syncDue = w.spare, nil, false\n",
		new: "	w.ready, w.spare, w.syncDue = w.spare, nil, false\n	for i, r := range w.under.puts {\n		if done := r.done; done != nil {\n			done(nil)\n			w.under.puts[i].done = func(error) {}\n		}\n	}\n",
	},
	{
		name: "segment reused before MANIFEST", file: "janitor.go",
		old: "	if err := s.commit([]manifestOp{addSeg(seg)}); err != nil {\n		seg.f.Close()\n		return err\n	}\n	s.spares <- seg\n	return nil",
		new: "	s.spares <- seg\n	return s.commit([]manifestOp{addSeg(seg)})",
	},
	{
		name: "numbers skipped at start", file: "recover.go",
		old: "s.log.next = max(rc.highest, rc.state.floor) + lsnSkip",
		new: "s.log.next = rc.highest + 1",
	},
	{
		name: "bitmaps not in MANIFEST", file: "janitor.go",
		old: "		all = append(all, r.takeDirty()...)\n",
		new: "		r.takeDirty()\n",
	},
	{
		name: "settles lost by a failing log", file: "log.go", by: "^TestSettleBetweenTwoSyncsIsWrittenAgain$",
		old: "		all = append(all, settle{key: k})\n",
		new: "		_ = k\n",
	},
	{
		name: "newest segment sealed first", file: "janitor.go",
		old: "	if len(s.segs) > 0 && s.segs[0].full {\n		return s.segs[0]\n	}\n	return nil",
		new: "	for i := len(s.segs) - 1; i >= 0; i-- {\n		if s.segs[i].full {\n			return s.segs[i]\n		}\n	}\n	return nil",
	},
	{
		name: "settle not replayed", file: "replay.go",
		old: "			rc.end(k, r.kind == kindCancel)\n",
		new: "			_ = k\n",
	},
	{
		name: "seal keeps an old home", file: "seal.go",
		old: "				r.end(int(p.ord), e.cancelled)\n",
		new: "				_ = p\n",
	},
	{by: "^TestFailedGroupIsCutOff$", name: "cut of a failed segment not noted", file: "janitor.go",
		old: "err := s.commit([]manifestOp{cutSeg(c)})",
		new: "err := s.commit(nil)"},
	{
		name: "punched before MANIFEST", file: "punch.go",
		old: "	if err := s.commit(nil); err != nil {\n		return true, err\n	}\n",
		new: "",
	},
	{
		name: "merge forgets what was done meanwhile", file: "mergeinstall.go",
		old: "	if at, ok := src.newOrd(ord); ok {\n		src.out",
		new: "	if at, ok := src.newOrd(ord); ok && at > maxRunEntries {\n		src.out",
	},
}
