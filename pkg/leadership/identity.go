package leadership

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// identitySeparator ends the host name in an identity. No host name has this character.
const identitySeparator = "_"

// NewIdentity returns the identity of one process in an election, in the form of Kubernetes' own components. The host
// name alone distinguishes no two processes of one host, and pods with the host's network have the host's name.
func NewIdentity(host string) string { return host + identitySeparator + string(uuid.NewUUID()) }

// HostOf returns the host name in an identity. It is the pod's name, unless the pod has the host's network. An identity
// that is only a host name, such as that of a stock sidecar, is returned unchanged.
func HostOf(identity string) string {
	host, _, _ := strings.Cut(identity, identitySeparator)
	return host
}
