package faults

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// Methods returns the method names of all RPCs that the driver serves.
func Methods() []string {
	var names []string
	for _, service := range []grpc.ServiceDesc{csi.Identity_ServiceDesc, csi.Controller_ServiceDesc,
		csi.Node_ServiceDesc} {
		for _, m := range service.Methods {
			names = append(names, m.MethodName)
		}
	}
	return names
}
