// Package proxy stands between one client and an API server, and does to the client what a network and a
// server in trouble do: late, lost and refused answers, watches that lag, break off and have to begin anew, silence, no
// connection at all. What the server itself does is never altered, and the client is never shown what no API server
// could show: a single read is as new as the moment it was sent, and a watch never goes back.
//
// The client speaks plain HTTP/1.1 to the proxy, so that each request has a connection that can be broken without harm
// to the others; towards the API server the proxy has the identity that it was given. Lists and watches are
// asked for in JSON, which client-go takes as well as protobuf, because the events of a watch must be distinguished.
//
// A [Rule] says what happens to which requests. What lasts (a watch on hold, a partition) are methods of [Proxy].
package proxy
