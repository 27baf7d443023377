package inflight

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// SourceInFlight returns whether an entry has a volume that is created from a source, and the problem if a part of the
// log cannot be read, which may have such an entry. The source's UID does not count. An entry counts from its Put until
// its removal is confirmed, because the next process repeats the request of an entry that is stored. The state is
// unknown before TakeOver, after another process took over, and after Run.
func (l *Log) SourceInFlight(of Source) (state volume.InFlight, problem string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return volume.InFlightUnknown, ""
	}
	for _, s := range l.shards {
		for it := range s.mayHave {
			if it.entry.isFrom(of) {
				return volume.InFlightOpen, ""
			}
		}
	}
	for _, p := range l.problems() {
		if p.HidesEntries() {
			return volume.InFlightUnreadable, p.String()
		}
	}
	return volume.InFlightSettled, ""
}

func (e *Entry) isFrom(of Source) bool {
	return slices.ContainsFunc(e.Requests, func(r Request) bool {
		return r.Source != nil && r.Source.Kind == of.Kind && r.Source.Namespace == of.Namespace && r.Source.Name == of.Name
	})
}
