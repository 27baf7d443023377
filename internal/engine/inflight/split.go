// Package inflight decides how a shard of the in-flight log divides its entries between its two Leases: the young
// Lease, which each write replaces, and the old one, which holds the entries that stay in doubt.
//
// An entry counts if the young Lease has it, or if only the old Lease has it and the young one lets the old one count.
// The old Lease is written first. Both functions are pure. Keys name volumes, and V is the stored form of an entry.
package inflight

// Split returns the entries that the old Lease holds before the next write of the wanted ones, and whether it has to be
// written for that. stored are the entries that it holds now and that count, and moving the keys of wanted entries that
// move to it.
//
// A replaced entry stays in the old Lease until its replacement moves, because the write of the replacement may fail. A
// removed one leaves the old Lease first: it would count again without the young Lease's entry.
func Split[V any](stored, want map[string]V, moving []string) (old map[string]V, write bool) {
	old = map[string]V{}
	for key, value := range stored {
		if _, wanted := want[key]; wanted {
			old[key] = value
		} else {
			write = true
		}
	}
	for _, key := range moving {
		if value, wanted := want[key]; wanted {
			old[key], write = value, true
		}
	}
	return old, write
}

// Young returns the entries of the young Lease, given all that are wanted and the ones that the old Lease holds. The
// old Lease counts from this write on if it holds an entry.
func Young[V comparable](want, old map[string]V) map[string]V {
	young := map[string]V{}
	for key, value := range want {
		if stored, there := old[key]; !there || stored != value {
			young[key] = value
		}
	}
	return young
}
