package faults

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// spoil applies one action to an answer, and returns other types of answers unchanged. The parameter token is the
// starting token of the call.
func spoil(answer any, action Action, token, firstPage string) any {
	if token == "" {
		token = firstPage
	}
	switch a := answer.(type) {
	case *csi.ListVolumesResponse:
		a = proto.CloneOf(a)
		if a.Entries = entries(a.Entries, action); len(a.Entries) > 0 {
			blank(action, &a.Entries[0].GetVolume().VolumeId)
		}
		if action == RepeatPage {
			a.NextToken = token
		}
		return a
	case *csi.ListSnapshotsResponse:
		a = proto.CloneOf(a)
		if a.Entries = entries(a.Entries, action); len(a.Entries) > 0 {
			blank(action, &a.Entries[0].GetSnapshot().SnapshotId)
		}
		if action == RepeatPage {
			a.NextToken = token
		}
		return a
	case *csi.CreateVolumeResponse:
		a = proto.CloneOf(a)
		blank(action, &a.GetVolume().VolumeId)
		return a
	case *csi.ControllerGetVolumeResponse:
		a = proto.CloneOf(a)
		blank(action, &a.GetVolume().VolumeId)
		return a
	case *csi.CreateSnapshotResponse:
		a = proto.CloneOf(a)
		blank(action, &a.GetSnapshot().SnapshotId)
		return a
	}
	return answer
}

func blank(action Action, id *string) {
	if action == BlankID {
		*id = ""
	}
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
