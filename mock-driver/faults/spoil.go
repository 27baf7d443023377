package faults

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// spoil carries out one action on an answer. An answer that has nothing to spoil comes back as it is. token is the one the call began with.
func spoil(answer any, action Action, token, firstPage string) any {
	if token == "" {
		token = firstPage
	}
	switch a := answer.(type) {
	case *csi.ListVolumesResponse:
		a = proto.CloneOf(a)
		a.Entries = entries(a.Entries, action)
		if action == RepeatPage {
			a.NextToken = token
		}
		if action == BlankID && len(a.Entries) > 0 {
			a.Entries[0].GetVolume().VolumeId = ""
		}
		return a
	case *csi.ListSnapshotsResponse:
		a = proto.CloneOf(a)
		a.Entries = entries(a.Entries, action)
		if action == RepeatPage {
			a.NextToken = token
		}
		if action == BlankID && len(a.Entries) > 0 {
			a.Entries[0].GetSnapshot().SnapshotId = ""
		}
		return a
	case *csi.CreateVolumeResponse:
		a = proto.CloneOf(a)
		if action == BlankID {
			a.GetVolume().VolumeId = ""
		}
		return a
	case *csi.ControllerGetVolumeResponse:
		a = proto.CloneOf(a)
		if action == BlankID {
			a.GetVolume().VolumeId = ""
		}
		return a
	case *csi.CreateSnapshotResponse:
		a = proto.CloneOf(a)
		if action == BlankID {
			a.GetSnapshot().SnapshotId = ""
		}
		return a
	}
	return answer
}

func entries[E any](page []E, action Action) []E {
	if len(page) == 0 {
		return page
	}
	switch action {
	case Duplicate:
		return append(page, page[0])
	case Reorder:
		slices.Reverse(page)
	case Omit:
		return page[1:]
	default:
	}
	return page
}
