package request

import (
	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

// maxHandle limits the part of a handle that messages repeat, in bytes. The CSI spec allows 128 ("Size Limits").
const maxHandle = 256

// check returns an error if the created volume does not match the request.
func (o Plan) check(volume *csi.Volume) error {
	handle := text.Truncate(volume.GetVolumeId(), maxHandle)
	asked := o.Request.GetCapacityRange().GetRequiredBytes()
	source := o.Request.GetVolumeContentSource()
	switch {
	case handle == "":
		return refuse(ReasonAnswerWithoutVolume,
			"CSI driver %q reported volume %q as created without an id; a volume may be left behind in the storage "+
				"system", o.Driver, o.Request.GetName())
	case volume.CapacityBytes < asked && volume.CapacityBytes != 0:
		return refuse(ReasonAnswerTooSmall,
			"CSI driver %q returned volume %q with %d bytes instead of %d; it is deleted again", o.Driver, handle,
			volume.CapacityBytes, asked)
	case source != nil && volume.ContentSource == nil:
		return refuse(ReasonAnswerFromNoSource,
			"CSI driver %q does not say that volume %q has the data of %s; it is deleted again", o.Driver, handle,
			describe(source))
	case source != nil && describe(source) != describe(volume.ContentSource):
		return refuse(ReasonAnswerFromOther,
			"CSI driver %q returned volume %q with the data of %s, not of %s as requested; it is deleted again",
			o.Driver, handle, describe(volume.ContentSource), describe(source))
	}
	return nil
}

// describe names a source of data, so that equal descriptions mean the same source.
func describe(source *csi.VolumeContentSource) string {
	switch from := source.GetType().(type) {
	case *csi.VolumeContentSource_Snapshot:
		return "snapshot " + from.Snapshot.GetSnapshotId()
	case *csi.VolumeContentSource_Volume:
		return "volume " + from.Volume.GetVolumeId()
	default:
		return "nothing"
	}
}
