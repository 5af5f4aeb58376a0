// Prints every request and answer of the fast path as Apache Kafka's own classes write it, at every version:
// a line of "message version hex" each. Run it with Kafka's jars on the class path: java -cp 'libs/*' Frames.java > frames.txt
// With a folder behind it, requests at the versions where their encoding changes most are put there as whole frames, for
// fuzzers to start from: java -cp 'libs/*' Frames.java seeds

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.MemoryRecords;

public class Frames {
    static final Uuid ID = new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L);
    static final MemoryRecords RECORDS = MemoryRecords.readableRecords(ByteBuffer.wrap("some records".getBytes()));

    static void print(String name, int version, Message message) {
        var cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, (short) version));
        message.write(new ByteBufferAccessor(buffer), cache, (short) version);
        System.out.println(name + " " + version + " " + HexFormat.of().formatHex(buffer.array()));
        if (seeds != null && name.endsWith("Request"))
            writeSeed(name, (short) version, ((ApiMessage) message).apiKey(), buffer.array());
    }

    static void writeSeed(String name, short version, short key, byte[] body) {
        ApiKeys api = ApiKeys.forId(key);
        boolean flexible = api.requestHeaderVersion(version) >= 2;
        boolean becomesFlexible = flexible
            && (version == api.oldestVersion() || api.requestHeaderVersion((short) (version - 1)) < 2);
        if (version != api.oldestVersion() && version != api.latestVersion() && !becomesFlexible)
            return;
        var frame = ByteBuffer.allocate(100 + body.length);
        frame.putShort(key).putShort(version).putInt(7).putShort((short) 1).put((byte) 'c');
        if (flexible)
            frame.put((byte) 0);
        frame.put(body);
        byte[] bytes = Arrays.copyOf(frame.array(), frame.position());
        try {
            Files.write(seeds.resolve(name + "-" + version + ".bin"), bytes);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static Path seeds = null;

    public static void main(String[] args) {
        if (args.length > 0)
            seeds = Path.of(args[0]);
        for (int v = 3; v <= 13; v++) {
            print("ProduceRequest", v, produceRequest(v));
            print("ProduceResponse", v, produceResponse(v));
        }
        for (int v = 4; v <= 18; v++) {
            print("FetchRequest", v, fetchRequest(v));
            print("FetchResponse", v, fetchResponse(v));
        }
        for (int v = 1; v <= 11; v++) {
            print("ListOffsetsRequest", v, listOffsetsRequest(v));
            print("ListOffsetsResponse", v, listOffsetsResponse(v));
        }
        for (int v = 0; v <= 13; v++) {
            print("MetadataRequest", v, metadataRequest(v));
            print("MetadataResponse", v, metadataResponse(v));
        }
        for (int v = 1; v <= 13; v++)
            print("MetadataRequestOfAll", v, new MetadataRequestData().setTopics(null));
        for (int v = 1; v <= 2; v++) {
            print("ShareFetchRequest", v, shareFetchRequest(v));
            print("ShareFetchResponse", v, shareFetchResponse());
            print("ShareAcknowledgeRequest", v, shareAcknowledgeRequest(v));
            print("ShareAcknowledgeResponse", v, shareAcknowledgeResponse(v));
        }
        printShareState();
        for (int v = 0; v <= 4; v++) {
            print("ApiVersionsRequest", v, new ApiVersionsRequestData()
                .setClientSoftwareName("a-client").setClientSoftwareVersion("1.2.3"));
            print("ApiVersionsResponse", v, apiVersionsResponse(v));
        }
        for (int v = 2; v <= 4; v++) {
            print("OffsetForLeaderEpochRequest", v, epochRequest(v));
            print("OffsetForLeaderEpochResponse", v, epochResponse());
        }
        print("DescribeTopicPartitionsRequest", 0, describeRequest());
        print("DescribeTopicPartitionsResponse", 0, describeResponse());
    }

    static Message produceRequest(int v) {
        var topics = new ProduceRequestData.TopicProduceDataCollection();
        var topic = new ProduceRequestData.TopicProduceData().setPartitionData(List.of(
            new ProduceRequestData.PartitionProduceData().setIndex(7).setRecords(RECORDS),
            new ProduceRequestData.PartitionProduceData().setIndex(8).setRecords(null)));
        topics.add(v >= 13 ? topic.setTopicId(ID) : topic.setName("topic"));
        return new ProduceRequestData().setTransactionalId("txn").setAcks((short) -1).setTimeoutMs(1500)
            .setTopicData(topics);
    }

    static Message produceResponse(int v) {
        var good = new ProduceResponseData.PartitionProduceResponse().setIndex(7).setErrorCode((short) 0)
            .setBaseOffset(1000).setLogAppendTimeMs(5).setLogStartOffset(3);
        var bad = new ProduceResponseData.PartitionProduceResponse().setIndex(8).setErrorCode((short) 87)
            .setBaseOffset(-1).setErrorMessage("why").setRecordErrors(List.of(
                new ProduceResponseData.BatchIndexAndErrorMessage().setBatchIndex(2).setBatchIndexErrorMessage("x"),
                new ProduceResponseData.BatchIndexAndErrorMessage().setBatchIndex(3)));
        var moved = new ProduceResponseData.PartitionProduceResponse().setIndex(9).setErrorCode((short) 6)
            .setBaseOffset(-1);
        if (v >= 10)
            moved.setCurrentLeader(new ProduceResponseData.LeaderIdAndEpoch().setLeaderId(4).setLeaderEpoch(11));
        var topic = new ProduceResponseData.TopicProduceResponse().setPartitionResponses(List.of(good, bad, moved));
        var topics = new ProduceResponseData.TopicProduceResponseCollection();
        topics.add(v >= 13 ? topic.setTopicId(ID) : topic.setName("topic"));
        var response = new ProduceResponseData().setResponses(topics);
        if (v >= 10) {
            var nodes = new ProduceResponseData.NodeEndpointCollection();
            nodes.add(new ProduceResponseData.NodeEndpoint().setNodeId(4).setHost("h").setPort(99).setRack(null));
            response.setNodeEndpoints(nodes);
        }
        return response;
    }

    static Message fetchRequest(int v) {
        var partition = new FetchRequestData.FetchPartition().setPartition(7).setCurrentLeaderEpoch(11)
            .setFetchOffset(1000).setLogStartOffset(3).setPartitionMaxBytes(4096)
            .setReplicaDirectoryId(ID).setHighWatermark(900);
        if (v >= 12)
            partition.setLastFetchedEpoch(10);
        var plain = new FetchRequestData.FetchPartition().setPartition(8).setFetchOffset(5).setPartitionMaxBytes(1);
        var topic = new FetchRequestData.FetchTopic().setPartitions(List.of(partition, plain));
        var request = new FetchRequestData().setMaxWaitMs(500).setMinBytes(1).setMaxBytes(9000)
            .setIsolationLevel((byte) 1).setSessionId(77).setSessionEpoch(2).setRackId("r")
            .setTopics(List.of(v >= 13 ? topic.setTopicId(ID) : topic.setTopic("topic"))).setClusterId("cluster");
        if (v >= 15)
            request.setReplicaState(new FetchRequestData.ReplicaState().setReplicaId(3).setReplicaEpoch(12));
        else
            request.setReplicaId(3);
        if (v >= 7) {
            var forgotten = new FetchRequestData.ForgottenTopic().setPartitions(List.of(1, 2));
            request.setForgottenTopicsData(List.of(v >= 13 ? forgotten.setTopicId(ID) : forgotten.setTopic("topic")));
        }
        return request;
    }

    static Message fetchResponse(int v) {
        var full = new FetchResponseData.PartitionData().setPartitionIndex(7).setHighWatermark(1000)
            .setLastStableOffset(999).setLogStartOffset(3).setRecords(RECORDS).setAbortedTransactions(List.of(
                new FetchResponseData.AbortedTransaction().setProducerId(5).setFirstOffset(6)));
        var empty = new FetchResponseData.PartitionData().setPartitionIndex(8).setErrorCode((short) 6)
            .setHighWatermark(-1).setAbortedTransactions(null).setRecords(MemoryRecords.EMPTY);
        if (v >= 11)
            full.setPreferredReadReplica(-1);
        if (v >= 12) {
            empty.setDivergingEpoch(new FetchResponseData.EpochEndOffset().setEpoch(9).setEndOffset(800));
            empty.setCurrentLeader(new FetchResponseData.LeaderIdAndEpoch().setLeaderId(4).setLeaderEpoch(11));
        }
        var topic = new FetchResponseData.FetchableTopicResponse().setPartitions(List.of(full, empty));
        var response = new FetchResponseData()
            .setResponses(List.of(v >= 13 ? topic.setTopicId(ID) : topic.setTopic("topic")));
        if (v >= 7)
            response.setSessionId(77).setErrorCode((short) 71);
        if (v >= 16) {
            var nodes = new FetchResponseData.NodeEndpointCollection();
            nodes.add(new FetchResponseData.NodeEndpoint().setNodeId(4).setHost("h").setPort(99).setRack("r"));
            response.setNodeEndpoints(nodes);
        }
        return response;
    }

    static Message listOffsetsRequest(int v) {
        var partition = new ListOffsetsRequestData.ListOffsetsPartition().setPartitionIndex(7)
            .setCurrentLeaderEpoch(11).setTimestamp(-2);
        return new ListOffsetsRequestData().setReplicaId(-1).setIsolationLevel((byte) (v >= 2 ? 1 : 0))
            .setTimeoutMs(1500).setTopics(List.of(
                new ListOffsetsRequestData.ListOffsetsTopic().setName("topic").setPartitions(List.of(partition))));
    }

    static Message listOffsetsResponse(int v) {
        var partition = new ListOffsetsResponseData.ListOffsetsPartitionResponse().setPartitionIndex(7)
            .setErrorCode((short) 0).setTimestamp(5).setOffset(1000);
        if (v >= 4)
            partition.setLeaderEpoch(11);
        return new ListOffsetsResponseData().setTopics(List.of(
            new ListOffsetsResponseData.ListOffsetsTopicResponse().setName("topic").setPartitions(List.of(partition))));
    }

    static Message metadataRequest(int v) {
        var topic = new MetadataRequestData.MetadataRequestTopic();
        if (v >= 12)
            topic.setTopicId(ID).setName(null);
        else
            topic.setName("topic");
        var request = new MetadataRequestData().setTopics(List.of(topic)).setAllowAutoTopicCreation(v < 4);
        if (v >= 8)
            request.setIncludeTopicAuthorizedOperations(true);
        if (v >= 8 && v <= 10)
            request.setIncludeClusterAuthorizedOperations(true);
        return request;
    }

    static Message metadataResponse(int v) {
        var brokers = new MetadataResponseData.MetadataResponseBrokerCollection();
        brokers.add(new MetadataResponseData.MetadataResponseBroker().setNodeId(4).setHost("h").setPort(99)
            .setRack("r"));
        var partition = new MetadataResponseData.MetadataResponsePartition().setErrorCode((short) 9)
            .setPartitionIndex(7).setLeaderId(4).setLeaderEpoch(11).setReplicaNodes(List.of(4, 5))
            .setIsrNodes(List.of(4)).setOfflineReplicas(List.of(5));
        var topics = new MetadataResponseData.MetadataResponseTopicCollection();
        var known = new MetadataResponseData.MetadataResponseTopic().setName("topic").setTopicId(ID)
            .setIsInternal(true).setPartitions(List.of(partition));
        if (v >= 8)
            known.setTopicAuthorizedOperations(3576);
        topics.add(known);
        topics.add(new MetadataResponseData.MetadataResponseTopic().setErrorCode((short) 100)
            .setName(v >= 12 ? null : "").setTopicId(Uuid.ZERO_UUID));
        var response = new MetadataResponseData().setBrokers(brokers).setClusterId("cluster").setControllerId(4)
            .setTopics(topics);
        if (v >= 8 && v <= 10)
            response.setClusterAuthorizedOperations(8096);
        if (v >= 13)
            response.setErrorCode((short) 42);
        return response;
    }

    static Message apiVersionsResponse(int v) {
        var apis = new ApiVersionsResponseData.ApiVersionCollection();
        apis.add(new ApiVersionsResponseData.ApiVersion().setApiKey((short) 0).setMinVersion((short) 0)
            .setMaxVersion((short) 13));
        apis.add(new ApiVersionsResponseData.ApiVersion().setApiKey((short) 18).setMinVersion((short) 0)
            .setMaxVersion((short) 4));
        var supported = new ApiVersionsResponseData.SupportedFeatureKeyCollection();
        supported.add(new ApiVersionsResponseData.SupportedFeatureKey().setName("metadata.version")
            .setMinVersion((short) 7).setMaxVersion((short) 30));
        if (v >= 4)
            supported.add(new ApiVersionsResponseData.SupportedFeatureKey().setName("group.version")
                .setMinVersion((short) 0).setMaxVersion((short) 1));
        var finalized = new ApiVersionsResponseData.FinalizedFeatureKeyCollection();
        finalized.add(new ApiVersionsResponseData.FinalizedFeatureKey().setName("metadata.version")
            .setMaxVersionLevel((short) 30).setMinVersionLevel((short) 30));
        return new ApiVersionsResponseData().setApiKeys(apis).setSupportedFeatures(supported)
            .setFinalizedFeaturesEpoch(123).setFinalizedFeatures(finalized);
    }

    static Message epochRequest(int v) {
        var topics = new OffsetForLeaderEpochRequestData.OffsetForLeaderTopicCollection();
        topics.add(new OffsetForLeaderEpochRequestData.OffsetForLeaderTopic().setTopic("topic").setPartitions(List.of(
            new OffsetForLeaderEpochRequestData.OffsetForLeaderPartition().setPartition(7).setCurrentLeaderEpoch(11)
                .setLeaderEpoch(10))));
        var request = new OffsetForLeaderEpochRequestData().setTopics(topics);
        return v >= 3 ? request.setReplicaId(-1) : request;
    }

    static Message epochResponse() {
        var topics = new OffsetForLeaderEpochResponseData.OffsetForLeaderTopicResultCollection();
        topics.add(new OffsetForLeaderEpochResponseData.OffsetForLeaderTopicResult().setTopic("topic")
            .setPartitions(List.of(new OffsetForLeaderEpochResponseData.EpochEndOffset().setPartition(7)
                .setLeaderEpoch(10).setEndOffset(900))));
        return new OffsetForLeaderEpochResponseData().setTopics(topics);
    }

    static Message describeRequest() {
        return new DescribeTopicPartitionsRequestData().setResponsePartitionLimit(20)
            .setTopics(List.of(new DescribeTopicPartitionsRequestData.TopicRequest().setName("topic")))
            .setCursor(new DescribeTopicPartitionsRequestData.Cursor().setTopicName("topic").setPartitionIndex(7));
    }

    static Message describeResponse() {
        var topics = new DescribeTopicPartitionsResponseData.DescribeTopicPartitionsResponseTopicCollection();
        topics.add(new DescribeTopicPartitionsResponseData.DescribeTopicPartitionsResponseTopic().setName("topic")
            .setTopicId(ID).setIsInternal(true).setTopicAuthorizedOperations(3576).setPartitions(List.of(
                new DescribeTopicPartitionsResponseData.DescribeTopicPartitionsResponsePartition().setPartitionIndex(7)
                    .setLeaderId(4).setLeaderEpoch(11).setReplicaNodes(List.of(4, 5)).setIsrNodes(List.of(4))
                    .setEligibleLeaderReplicas(List.of(6)).setLastKnownElr(List.of(8))
                    .setOfflineReplicas(List.of(5)))));
        return new DescribeTopicPartitionsResponseData().setTopics(topics).setNextCursor(
            new DescribeTopicPartitionsResponseData.Cursor().setTopicName("topic").setPartitionIndex(8));
    }

    static Message shareFetchRequest(int v) {
        var topics = new ShareFetchRequestData.FetchTopicCollection();
        var partitions = new ShareFetchRequestData.FetchPartitionCollection();
        partitions.add(new ShareFetchRequestData.FetchPartition().setPartitionIndex(7).setAcknowledgementBatches(List.of(
            new ShareFetchRequestData.AcknowledgementBatch().setFirstOffset(5).setLastOffset(9)
                .setAcknowledgeTypes(List.of((byte) 1)),
            new ShareFetchRequestData.AcknowledgementBatch().setFirstOffset(10).setLastOffset(12)
                .setAcknowledgeTypes(List.of((byte) 0, (byte) 2, (byte) -3)))));
        partitions.add(new ShareFetchRequestData.FetchPartition().setPartitionIndex(8));
        topics.add(new ShareFetchRequestData.FetchTopic().setTopicId(ID).setPartitions(partitions));
        var request = new ShareFetchRequestData().setGroupId("group").setMemberId("member").setShareSessionEpoch(3)
            .setMaxWaitMs(500).setMinBytes(1).setMaxBytes(9000).setMaxRecords(100).setBatchSize(50).setTopics(topics)
            .setForgottenTopicsData(List.of(
                new ShareFetchRequestData.ForgottenTopic().setTopicId(ID).setPartitions(List.of(1, 2))));
        return v >= 2 ? request.setShareAcquireMode((byte) 1).setIsRenewAck(true) : request;
    }

    static Message shareFetchResponse() {
        var full = new ShareFetchResponseData.PartitionData().setPartitionIndex(7).setRecords(RECORDS)
            .setAcquiredRecords(List.of(
                new ShareFetchResponseData.AcquiredRecords().setFirstOffset(5).setLastOffset(9).setDeliveryCount((short) 1),
                new ShareFetchResponseData.AcquiredRecords().setFirstOffset(12).setLastOffset(12)
                    .setDeliveryCount((short) 2)));
        var moved = new ShareFetchResponseData.PartitionData().setPartitionIndex(8).setErrorCode((short) 6)
            .setErrorMessage("why").setAcknowledgeErrorCode((short) 121).setAcknowledgeErrorMessage("state")
            .setCurrentLeader(new ShareFetchResponseData.LeaderIdAndEpoch().setLeaderId(4).setLeaderEpoch(11))
            .setRecords(MemoryRecords.EMPTY);
        var topics = new ShareFetchResponseData.ShareFetchableTopicResponseCollection();
        topics.add(new ShareFetchResponseData.ShareFetchableTopicResponse().setTopicId(ID)
            .setPartitions(List.of(full, moved)));
        var nodes = new ShareFetchResponseData.NodeEndpointCollection();
        nodes.add(new ShareFetchResponseData.NodeEndpoint().setNodeId(4).setHost("h").setPort(99).setRack("r"));
        return new ShareFetchResponseData().setErrorCode((short) 123).setErrorMessage("epoch")
            .setAcquisitionLockTimeoutMs(30000).setResponses(topics).setNodeEndpoints(nodes);
    }

    static Message shareAcknowledgeRequest(int v) {
        var topics = new ShareAcknowledgeRequestData.AcknowledgeTopicCollection();
        var partitions = new ShareAcknowledgeRequestData.AcknowledgePartitionCollection();
        partitions.add(new ShareAcknowledgeRequestData.AcknowledgePartition().setPartitionIndex(7)
            .setAcknowledgementBatches(List.of(new ShareAcknowledgeRequestData.AcknowledgementBatch().setFirstOffset(5)
                .setLastOffset(9).setAcknowledgeTypes(List.of((byte) 4)))));
        topics.add(new ShareAcknowledgeRequestData.AcknowledgeTopic().setTopicId(ID).setPartitions(partitions));
        var request = new ShareAcknowledgeRequestData().setGroupId("group").setMemberId(null).setShareSessionEpoch(-1)
            .setTopics(topics);
        return v >= 2 ? request.setIsRenewAck(true) : request;
    }

    static Message shareAcknowledgeResponse(int v) {
        var topics = new ShareAcknowledgeResponseData.ShareAcknowledgeTopicResponseCollection();
        topics.add(new ShareAcknowledgeResponseData.ShareAcknowledgeTopicResponse().setTopicId(ID).setPartitions(List.of(
            new ShareAcknowledgeResponseData.PartitionData().setPartitionIndex(7),
            new ShareAcknowledgeResponseData.PartitionData().setPartitionIndex(8).setErrorCode((short) 6)
                .setErrorMessage("why").setCurrentLeader(
                    new ShareAcknowledgeResponseData.LeaderIdAndEpoch().setLeaderId(4).setLeaderEpoch(11)))));
        var nodes = new ShareAcknowledgeResponseData.NodeEndpointCollection();
        nodes.add(new ShareAcknowledgeResponseData.NodeEndpoint().setNodeId(4).setHost("h").setPort(99).setRack(null));
        var response = new ShareAcknowledgeResponseData().setResponses(topics).setNodeEndpoints(nodes);
        return v >= 2 ? response.setAcquisitionLockTimeoutMs(15000) : response;
    }

    /** The share state of one partition, without seeds: brokers exchange it. */
    static void printShareState() {
        Path kept = seeds;
        seeds = null;
        print("ReadShareGroupStateRequest", 0, new ReadShareGroupStateRequestData().setGroupId("group").setTopics(List.of(
            new ReadShareGroupStateRequestData.ReadStateData().setTopicId(ID).setPartitions(List.of(
                new ReadShareGroupStateRequestData.PartitionData().setPartition(7).setLeaderEpoch(11))))));
        print("ReadShareGroupStateResponse", 0, new ReadShareGroupStateResponseData().setResults(List.of(
            new ReadShareGroupStateResponseData.ReadStateResult().setTopicId(ID).setPartitions(List.of(
                new ReadShareGroupStateResponseData.PartitionResult().setPartition(7).setStateEpoch(2).setStartOffset(5)
                    .setStateBatches(List.of(new ReadShareGroupStateResponseData.StateBatch().setFirstOffset(5)
                        .setLastOffset(9).setDeliveryState((byte) 2).setDeliveryCount((short) 3))))))));
        print("WriteShareGroupStateRequest", 1, new WriteShareGroupStateRequestData().setGroupId("group").setTopics(List.of(
            new WriteShareGroupStateRequestData.WriteStateData().setTopicId(ID).setPartitions(List.of(
                new WriteShareGroupStateRequestData.PartitionData().setPartition(7).setStateEpoch(2).setLeaderEpoch(11)
                    .setStartOffset(5).setDeliveryCompleteCount(4).setStateBatches(List.of(
                        new WriteShareGroupStateRequestData.StateBatch().setFirstOffset(5).setLastOffset(9)
                            .setDeliveryState((byte) 4).setDeliveryCount((short) 3))))))));
        print("WriteShareGroupStateResponse", 1, new WriteShareGroupStateResponseData().setResults(List.of(
            new WriteShareGroupStateResponseData.WriteStateResult().setTopicId(ID).setPartitions(List.of(
                new WriteShareGroupStateResponseData.PartitionResult().setPartition(7).setErrorCode((short) 74)
                    .setErrorMessage("fenced"))))));
        seeds = kept;
    }
}
