package servers

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// writeConfig writes server.properties and the logging set-up into the broker's folder.
func (k *KafkaServer) writeConfig() error {
	if err := os.WriteFile(k.propertiesFile(), k.properties(), 0o600); err != nil {
		return fmt.Errorf("write server.properties: %w", err)
	}
	if err := os.WriteFile(k.log4jFile(), []byte(log4j), 0o600); err != nil {
		return fmt.Errorf("write the broker's logging set-up: %w", err)
	}
	return nil
}

func (k *KafkaServer) propertiesFile() string { return filepath.Join(k.dir, "server.properties") }
func (k *KafkaServer) log4jFile() string      { return filepath.Join(k.dir, "log4j2.properties") }

func (k *KafkaServer) javaArgs(heap string, jvm []string) []string {
	return append(slices.Clone(jvm), "-Xms"+heap, "-Xmx"+heap, "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile="+k.log4jFile(), "-cp", filepath.Join(k.lib, "*"))
}

// properties is server.properties: our own settings, overridden by the caller's.
func (k *KafkaServer) properties() []byte {
	p := k.defaults()
	maps.Copy(p, k.options.Properties)
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", key, p[key])
	}
	return []byte(b.String())
}

func (k *KafkaServer) defaults() map[string]string {
	p := map[string]string{
		"process.roles":                    "broker,controller",
		"node.id":                          "1",
		"controller.quorum.voters":         "1@" + k.address(controllerPort),
		"controller.listener.names":        "CONTROLLER",
		"inter.broker.listener.name":       "PLAINTEXT",
		"log.dirs":                         filepath.Join(k.dir, "data"),
		"auto.create.topics.enable":        "false",
		"group.initial.rebalance.delay.ms": "0", // no wait before a group's first rebalance
	}
	for _, topic := range []string{"offsets.topic", "transaction.state.log", "share.coordinator.state.topic"} {
		p[topic+".replication.factor"] = "1"
		p[topic+".num.partitions"] = "4"
	}
	p["transaction.state.log.min.isr"], p["share.coordinator.state.topic.min.isr"] = "1", "1"
	maps.Copy(p, k.listeners())
	maps.Copy(p, quick)
	return p
}

// quick lets compaction, retention and deletion show within a second or so, and a broker come back soon after a kill: until the session of
// its former self has timed out it is refused as a duplicate.
var quick = map[string]string{
	"broker.session.timeout.ms":                                   "4000",
	"broker.heartbeat.interval.ms":                                "500",
	"log.cleaner.backoff.ms":                                      "500",
	"log.cleaner.dedupe.buffer.size":                              strconv.Itoa(8 << 20), // 128 MiB of the heap by default
	"log.retention.check.interval.ms":                             "1000",
	"log.segment.delete.delay.ms":                                 "1000",
	"log.initial.task.delay.ms":                                   "1000",
	"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}

// listeners is what the broker listens on, and what it tells its clients about that.
func (k *KafkaServer) listeners() map[string]string {
	listen := []string{"PLAINTEXT://" + k.address(plainPort), "SASL_PLAINTEXT://" + k.address(saslPort), "SSL://" + k.address(tlsPort)}
	advertise := slices.Clone(listen)
	listen = append(listen, "CONTROLLER://"+k.address(controllerPort))
	if k.faults != nil {
		listen = append(listen, "FAULTS://"+k.address(faultsPort))
		advertise = append(advertise, "FAULTS://"+k.faults.Addr())
	}
	const module = "org.apache.kafka.common.security."
	return map[string]string{
		"listeners":                      strings.Join(listen, ","),
		"advertised.listeners":           strings.Join(advertise, ","),
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FAULTS:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL",
		"sasl.enabled.mechanisms":        "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
		"listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": module + "scram.ScramLoginModule required;",
		"listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": module + "scram.ScramLoginModule required;",
		"listener.name.sasl_plaintext.plain.sasl.jaas.config": module + "plain.PlainLoginModule required user_" + KafkaUser + "=\"" +
			KafkaPassword + "\";",
		"ssl.keystore.type":       "PEM",
		"ssl.keystore.location":   k.certs.Server,
		"ssl.truststore.type":     "PEM",
		"ssl.truststore.location": k.certs.CA,
		"ssl.client.auth":         "requested",
	}
}

const log4j = `status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{HH:mm:ss.SSS} %p %m (%c{1})%n%throwable
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
`

// kafkaClusterID is a new cluster's id, so that no two brokers of a test are taken for one: a random UUID in URL-safe base64. Kafka's tools
// take a leading dash for an option, so the first byte avoids it.
func kafkaClusterID() string {
	var id [16]byte
	rand.Read(id[:])
	id[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(id[:])
}
