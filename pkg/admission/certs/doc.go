// Package certs rotates the certificate of the webhooks: it issues a certificate, stores it in a Secret that all
// replicas share, writes its authority into the caBundle of the webhook configurations, and replaces it before it
// expires without a failed request.
//
// Stability: for the programs of this repository. It may change with each release.
package certs
