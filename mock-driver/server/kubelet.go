package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/socket"
)

// Kubelet is a further node. The driver serves a separate node service for its kubelet, and mounts volumes there.
type Kubelet struct {
	// NodeID is the node id that NodeGetInfo of this service reports.
	NodeID string
	// RootDir is the kubelet's --root-dir.
	RootDir string
}

func (k Kubelet) validate() error {
	if !filepath.IsAbs(k.RootDir) {
		return fmt.Errorf("kubelet of node %q: root directory %q is not an absolute path", k.NodeID, k.RootDir)
	}
	return validateNodeID(k.NodeID)
}

type endpoint struct {
	server   *grpc.Server
	listener net.Listener
}

// listenForKubelets creates two endpoints for each kubelet: the driver's, without the controller service, and a
// registration socket in the kubelet's plugins_registry, like the one of node-driver-registrar.
func (s *Server) listenForKubelets(ctx context.Context) (endpoints []endpoint, err error) {
	for _, k := range s.config.Kubelets {
		service := filepath.Join(k.RootDir, "plugins", s.config.Name, "csi.sock")
		driver := s.newServer(&node{Server: s, id: k.NodeID, mounts: s.mounts})
		registry := grpc.NewServer()
		registration.RegisterRegistrationServer(registry, &registrar{name: s.config.Name, service: service, log: s.log})
		for _, e := range []struct {
			path   string
			server *grpc.Server
		}{
			{service, driver}, // first, because a kubelet calls it as soon as it finds the registration socket
			{filepath.Join(k.RootDir, "plugins_registry", s.config.Name+"-reg.sock"), registry},
		} {
			l, err := socket.ListenBelow(ctx, e.path)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("kubelet of node %q: %w", k.NodeID, err), closeAll(endpoints))
			}
			endpoints = append(endpoints, endpoint{e.server, l})
		}
	}
	return endpoints, nil
}

func closeAll(endpoints []endpoint) error {
	var err error
	for _, e := range endpoints {
		err = errors.Join(err, e.listener.Close())
	}
	return err
}

// registrar registers the driver with a kubelet (k8s.io/kubelet/pkg/apis/pluginregistration/v1).
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, service string
	log           *slog.Logger
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.service,
		SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registrar) NotifyRegistrationStatus(ctx context.Context,
	status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.GetPluginRegistered() {
		r.log.ErrorContext(ctx, "kubelet refuses the driver", "endpoint", r.service, "error", status.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}
