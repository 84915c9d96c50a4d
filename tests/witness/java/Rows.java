import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericArray;
import org.apache.paimon.data.GenericMap;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeChecks;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.MultisetType;
import org.apache.paimon.types.RowType;

/** Values of the format <-> JSON, in the encoding of tests/interop/values.py. */
final class Rows {

    private static final DateTimeFormatter SECONDS = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss");

    private Rows() {}

    // JSON -> values

    static GenericRow row(JsonNode json, RowType type) {
        GenericRow row = new GenericRow(type.getFieldCount());
        for (int i = 0; i < type.getFieldCount(); i++) {
            DataField field = type.getFields().get(i);
            row.setField(i, value(json.get(field.name()), field.type()));
        }
        return row;
    }

    static Object value(JsonNode json, DataType type) {
        if (json == null || json.isNull()) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return json.booleanValue();
            case TINYINT:
                return (byte) json.intValue();
            case SMALLINT:
                return (short) json.intValue();
            case INTEGER:
                return json.intValue();
            case BIGINT:
                return json.longValue();
            case FLOAT:
                return Float.parseFloat(json.asText());
            case DOUBLE:
                return Double.parseDouble(json.asText());
            case DECIMAL:
                DecimalType decimal = (DecimalType) type;
                return Decimal.fromBigDecimal(
                        new BigDecimal(json.textValue()), decimal.getPrecision(), decimal.getScale());
            case CHAR:
            case VARCHAR:
                return BinaryString.fromString(json.textValue());
            case BINARY:
            case VARBINARY:
                return HexFormat.of().parseHex(json.textValue());
            case DATE:
                return (int) LocalDate.parse(json.textValue()).toEpochDay();
            case TIME_WITHOUT_TIME_ZONE:
                return (int) (LocalTime.parse(json.textValue()).toNanoOfDay() / 1_000_000);
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                String text = json.textValue();
                return Timestamp.fromLocalDateTime(
                        LocalDateTime.parse(text.endsWith("Z") ? text.substring(0, text.length() - 1) : text));
            case ARRAY:
                List<Object> elements = new ArrayList<>();
                json.forEach(element -> elements.add(value(element, ((ArrayType) type).getElementType())));
                return new GenericArray(elements.toArray());
            case MAP:
                return map(json, ((MapType) type).getKeyType(), ((MapType) type).getValueType());
            case MULTISET:
                return map(json, ((MultisetType) type).getElementType(), DataTypes.INT());
            case ROW:
                return row(json, (RowType) type);
            default:
                throw new IllegalArgumentException("no JSON for type " + type);
        }
    }

    private static GenericMap map(JsonNode json, DataType keyType, DataType valueType) {
        Map<Object, Object> map = new LinkedHashMap<>();
        json.forEach(pair -> map.put(value(pair.get(0), keyType), value(pair.get(1), valueType)));
        return new GenericMap(map);
    }

    // values -> JSON

    static Map<String, Object> json(InternalRow row, RowType type) {
        Map<String, Object> json = new LinkedHashMap<>();
        for (int i = 0; i < type.getFieldCount(); i++) {
            DataField field = type.getFields().get(i);
            Object value = InternalRow.createFieldGetter(field.type(), i).getFieldOrNull(row);
            json.put(field.name(), json(value, field.type()));
        }
        return json;
    }

    private static Object json(Object value, DataType type) {
        if (value == null) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case FLOAT:
                return real((Float) value);
            case DOUBLE:
                double real = (Double) value;
                return Double.isFinite(real) ? (Object) real : Double.toString(real);
            case DECIMAL:
                return ((Decimal) value).toBigDecimal().toPlainString();
            case CHAR:
            case VARCHAR:
                return value.toString();
            case BINARY:
            case VARBINARY:
                return HexFormat.of().formatHex((byte[]) value);
            case DATE:
                return LocalDate.ofEpochDay((Integer) value).toString();
            case TIME_WITHOUT_TIME_ZONE:
                LocalTime time = LocalTime.ofNanoOfDay((Integer) value * 1_000_000L);
                return time.format(DateTimeFormatter.ofPattern("HH:mm:ss.SSS"));
            case TIMESTAMP_WITHOUT_TIME_ZONE:
                return timestamp((Timestamp) value);
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return timestamp((Timestamp) value) + "Z";
            case ARRAY:
                return list((InternalArray) value, ((ArrayType) type).getElementType());
            case MAP:
                return pairs((InternalMap) value, ((MapType) type).getKeyType(), ((MapType) type).getValueType());
            case MULTISET:
                return pairs((InternalMap) value, ((MultisetType) type).getElementType(), DataTypes.INT());
            case ROW:
                return json((InternalRow) value, (RowType) type);
            default:
                return value;
        }
    }

    /** The shortest number that reads back as the same float; Float.toString of Java 17 is longer for some. */
    private static Object real(float value) {
        if (!Float.isFinite(value)) {
            return Float.toString(value);
        }
        BigDecimal exact = new BigDecimal(value);
        for (int digits = 1; digits < 9; digits++) {
            BigDecimal rounded = exact.round(new MathContext(digits, RoundingMode.HALF_EVEN));
            if (value != 0 && rounded.floatValue() == value) {
                return rounded.doubleValue();
            }
        }
        return value == 0 ? (Object) (double) value : exact.round(new MathContext(9, RoundingMode.HALF_EVEN)).doubleValue();
    }

    private static String timestamp(Timestamp value) {
        long seconds = Math.floorDiv(value.getMillisecond(), 1000L);
        long nanos = Math.floorMod(value.getMillisecond(), 1000L) * 1_000_000L + value.getNanoOfMillisecond();
        LocalDateTime second = LocalDateTime.ofEpochSecond(seconds, 0, ZoneOffset.UTC);
        return String.format("%s.%09d", SECONDS.format(second), nanos);
    }

    private static List<Object> list(InternalArray array, DataType elementType) {
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(elementType);
        List<Object> list = new ArrayList<>();
        for (int i = 0; i < array.size(); i++) {
            list.add(json(getter.getElementOrNull(array, i), elementType));
        }
        return list;
    }

    private static List<List<Object>> pairs(InternalMap map, DataType keyType, DataType valueType) {
        List<Object> keys = list(map.keyArray(), keyType);
        List<Object> values = list(map.valueArray(), valueType);
        List<List<Object>> pairs = new ArrayList<>();
        for (int i = 0; i < keys.size(); i++) {
            List<Object> pair = new ArrayList<>();
            pair.add(keys.get(i));
            pair.add(values.get(i));
            pairs.add(pair);
        }
        pairs.sort(Comparator.comparing(pair -> String.valueOf(pair.get(0))));
        return pairs;
    }
}
