package builder

import (
	"errors"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Fixed is the Capable of a driver whose capabilities never change, such as one that calls its storage system without
// CSI. It creates and deletes volumes, and the fields have its further capabilities.
type Fixed struct {
	// Driver is the driver's name, which its PVs have as spec.csi.driver. Required.
	Driver string
	// Controller lists further capabilities, such as CLONE_VOLUME. Default none.
	Controller []csi.ControllerServiceCapability_RPC_Type
	// Topology means that not every node can use every volume. Then a request has the topology segments of nodes, as the
	// driver's kubelet plugin registers them in the CSINodes, and CreateVolume returns those of the volume.
	Topology bool
}

// Name returns the driver's name.
func (f Fixed) Name() string { return f.Driver }

// Known returns an error if the driver has no name.
func (f Fixed) Known() error {
	if f.Driver == "" {
		return errors.New("the driver's name is empty")
	}
	return nil
}

// Has reports whether the driver has a capability of CSI's controller service.
func (f Fixed) Has(capability csi.ControllerServiceCapability_RPC_Type) bool {
	return capability == csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME ||
		slices.Contains(f.Controller, capability)
}

// Offers reports whether the driver has a capability of a CSI plugin.
func (f Fixed) Offers(service csi.PluginCapability_Service_Type) bool {
	return service == csi.PluginCapability_Service_CONTROLLER_SERVICE || f.Topology && service == topologyService
}
