package server

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type identity struct {
	csi.UnimplementedIdentityServer
	*Server
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.config.Name, VendorVersion: i.config.Version}, nil
}

func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(i.ready())}, nil
}

func (i *identity) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	r := &csi.GetPluginCapabilitiesResponse{}
	for _, c := range []struct {
		capability Capability
		service    csi.PluginCapability_Service_Type
		expansion  csi.PluginCapability_VolumeExpansion_Type
	}{
		{ControllerService, csi.PluginCapability_Service_CONTROLLER_SERVICE, 0},
		{VolumeTopology, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS, 0},
		{SnapshotTopology, csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS, 0},
		{ExpansionOnline, 0, csi.PluginCapability_VolumeExpansion_ONLINE},
		{ExpansionOffline, 0, csi.PluginCapability_VolumeExpansion_OFFLINE},
	} {
		switch {
		case !i.can(c.capability):
		case c.expansion != 0:
			r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{
				VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: c.expansion}}})
		default:
			r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
				Service: &csi.PluginCapability_Service{Type: c.service}}})
		}
	}
	return r, nil
}
